"""Temporary folders that do not outlive their processes for long, were these killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_SCRATCH = "memplan-"
_SCRATCH_SECONDS = 60.0
_MARK = ".memplan-scratch"
"""A file in each of these folders: others may have names like theirs."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for as long as it is needed. Those that killed processes left go first."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as name, _held(name):
        folder = Path(name)
        (folder / _MARK).touch()
        yield folder


def _sweep(parent: Path) -> None:
    """Remove the user's scratch folders that no process holds."""
    if sys.platform == "win32":
        return
    for folder in parent.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            # Whoever has made one of late may not have come to hold it yet.
            is_old = time.time() - found.st_mtime > _SCRATCH_SECONDS
            is_own = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
            if is_own and is_old and (folder / _MARK).is_file():
                with _held(folder):
                    shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: Path | str) -> Iterator[None]:
    """Hold `folder` until this process ends, however it ends; raises OSError where another one does."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    number = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)
