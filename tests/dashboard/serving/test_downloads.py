"""What a button makes can be fetched though the page runs again meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.serving import downloads
from streamlit.runtime import media_file_manager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage


class Session:
    """A page with one button, whose runs come a second apart."""

    def __init__(self, now: Iterator[float]) -> None:
        self.manager = MediaFileManager(MemoryMediaFileStorage("/media"))
        self.now, self.time = now, 0.0

    def run(self) -> str:
        """One run; the number of what the button offers."""
        self.time = next(self.now)
        self.manager.clear_session_refs()
        offered = self.manager.add_deferred(lambda: b"offsets", "text/csv", "1.2", "plan.csv")
        self.manager.remove_orphaned_files()
        return offered

    def is_served(self, url: str) -> bool:
        """Whether a file can be fetched that was made."""
        return self.manager.read_file(url.rpartition("/")[2]) is not None


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """In a server of its own."""
    for name in ("remove_orphaned_files", "_remove_orphaned_deferred_callables"):
        monkeypatch.setattr(MediaFileManager, name, getattr(MediaFileManager, name))
    monkeypatch.setattr(media_file_manager, "_get_session_id", lambda: "session")
    session = Session(map(float, count()))
    monkeypatch.setattr(downloads, "time", SimpleNamespace(monotonic=lambda: session.time))
    return session


def test_a_button_of_the_run_before_still_makes_its_file_which_stays_to_be_fetched(session: Session) -> None:
    downloads.keep_downloads()
    session.run()
    offered = session.run()
    for _ in range(5):
        session.run()
    made = session.manager.execute_deferred(offered)
    for _ in range(5):
        session.run()
    assert session.is_served(made)


def test_streamlit_alone_forgets_both(session: Session) -> None:
    """Where this fails, Streamlit has mended it: keep_downloads can go."""
    offered = session.run()
    made = session.manager.execute_deferred(offered)
    session.run()
    with pytest.raises(MediaFileStorageError, match="not found"):
        session.manager.execute_deferred(offered)
    session.run()
    assert not session.is_served(made)


def test_what_nobody_needs_goes(session: Session) -> None:
    downloads.keep_downloads(10)
    offered = session.run()
    made = session.manager.execute_deferred(offered)
    for _ in range(40):
        session.run()
    assert not session.is_served(made)
    with pytest.raises(MediaFileStorageError, match="not found"):
        session.manager.execute_deferred(offered)
    assert len(session.manager._deferred_callables) <= 21  # of the last twenty runs, and the one on screen
