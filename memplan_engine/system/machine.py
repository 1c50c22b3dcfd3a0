"""What this machine has, asked in the way that each system answers."""

from __future__ import annotations

import os
import sys


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
        known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return status.physical if known else None
