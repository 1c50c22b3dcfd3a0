"""Downloads that survive a page which runs again while somebody clicks.

Streamlit forgets what a button would make as soon as its page has run again, though the browser still shows
the old button, and what was made after two runs of whichever page, though nobody may have fetched it yet:
both end in 404. A page runs by itself when suggestions arrive or a search finds a better plan.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamlit.runtime.media_file_manager import MediaFileManager

KEEP_SECONDS = 30.0
"""What nobody refers to any more stays at least so long: a slow browser has drawn its new buttons by then."""


def keep_downloads(seconds: float = KEEP_SECONDS) -> None:
    """Have Streamlit look for what is not needed any more only every `seconds`, and remove what it finds a
    second time."""
    from streamlit.runtime.media_file_manager import MediaFileManager

    sweep = MediaFileManager.remove_orphaned_files
    last = float("-inf")
    unused: set[str] = set()

    def sweep_seldom(manager: MediaFileManager) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds:
            last = now
            sweep(manager)

    def drop(manager: MediaFileManager) -> None:
        nonlocal unused
        used = {each for files in manager._files_by_session_and_coord.values() for each in files.values()}
        found = manager._deferred_callables.keys() - used
        for each in found & unused:
            manager._drop_deferred_id(each)
        unused = found - unused

    MediaFileManager.remove_orphaned_files = sweep_seldom  # type: ignore[method-assign, assignment]
    MediaFileManager._remove_orphaned_deferred_callables = drop  # type: ignore[method-assign, assignment]
