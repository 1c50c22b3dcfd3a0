"""Counts of work: the same on any machine, however fast or busy it is."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Calls:
    """Calls of functions of Python and of C in this thread; a loop within C or machine code is one call."""

    count: int = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls made in the body."""
    calls = Calls()

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            calls.count += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls `work` makes."""
    with counted_calls() as calls:
        work()
    return calls.count


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most bytes that Python and NumPy hold at once during `work`, above what they held before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
