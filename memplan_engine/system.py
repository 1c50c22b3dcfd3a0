"""What the operating system and Python offer: cores and memory, files written whole, modules by name."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError


def by_name(name: str) -> Any:
    """What `name`, written "package.module:attribute" as entry points are, stands for: imported when somebody
    asks for it, so that registries stay light, and a value is shown by a room that it does not know."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


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


def count_cores() -> int:
    """The cores that this process may use, 1 or more: those that it is bound to where the system tells
    (Linux), else all of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """The machine's memory in bytes; None where it cannot be told."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return pages * size if pages > 0 and size > 0 else None


if sys.platform == "win32":
    import ctypes

    class _MemoryStatus(ctypes.Structure):
        """MEMORYSTATUSEX: its own length, the load in percent, then bytes, those of the machine first."""

        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("physical", ctypes.c_uint64),
            ("others", ctypes.c_uint64 * 6),
        )

    def _windows_memory() -> int | None:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        succeeded = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return status.physical if succeeded else None
