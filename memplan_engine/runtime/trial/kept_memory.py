"""Memory that is freed stays with the process for a while, so that ops are timed without page faults."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""Settings of glibc's mallopt(3)."""
NEVER, NONE, USUAL = -1, 0, 65536
LARGEST, TRIMMED = 32 << 20, 64 << 20
"""Where the thresholds of glibc end that it moves by itself, as it does before one is set."""


@contextmanager
def kept_memory() -> Iterator[None]:
    """Meanwhile glibc gives nothing back to the system that is freed, and asks it for no mappings of their
    own: an op that makes a large result finds pages that are there, as in a loop whose allocator keeps them,
    and is not charged for pages that the system hands out anew. With any other C library nothing changes, nor
    in a thread but the first, or once an allocation has failed in that: glibc maps what is larger than a heap
    of such an arena (64 MiB) whatever is set."""
    mallopt = _mallopt()
    if mallopt is None:
        yield
        return
    mallopt(MMAP_MAX, NONE)
    mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, TRIMMED)
        mallopt(MMAP_MAX, USUAL)
        ctypes.CDLL(None).malloc_trim(0)


def _mallopt() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    found: Callable[[int, int], int] = library.mallopt
    return found
