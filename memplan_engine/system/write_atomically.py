"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from memplan_engine.errors import InputError


def write_atomically(path: Path | str, data: bytes) -> None:
    """Write `data` to `path`, replacing what stood there; on failure the old file is left as it was.

    Raises
    ------
    InputError: the folder does not exist, the place may not be written, or it is no regular file.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(str(path), "", "a folder or a device", "a file that may be written")
    # Beside the target, so that the final move stays on one file system and is atomic.
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                file.write(data)
            draft.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
    except FileNotFoundError:
        raise InputError(str(path), "", "a folder that does not exist", "an existing folder") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), "", f"{reason!r} on writing", "a file that may be written") from None
