"""Work under limits in a thread of its own, so that whoever asked can look on and cancel it.

Python takes a signal only in its main thread, and there only between two steps of the interpreter: a main
thread that is inside a kernel hears no Ctrl-C. One that waits here does, for kernels release the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from memplan_engine.strategies.base import Progress, SolveLimits

EVERY = 1 / 8
"""Seconds between two looks at the progress."""

Result = TypeVar("Result")
Watch = Callable[[Progress], None]


def solve(
    work: Callable[[], Result], limits: SolveLimits, watch: Watch | None = None, *, every: float = EVERY
) -> Result:
    """What `work` gives, which runs in another thread, limited by `limits`; what it raises is raised here.

    Until then this thread waits, and calls `watch` with the progress so far every `every` seconds. Should
    `watch` or a signal handler raise, the search is cancelled and the work is left to itself: it is in a
    daemon thread, which keeps no process from ending.
    """
    worker = _Worker(work)
    worker.start()
    try:
        while not worker.done.wait(every):
            if watch:
                watch(limits.progress())
    except BaseException:
        limits.cancel()
        raise
    return worker.outcome()


class _Worker(threading.Thread, Generic[Result]):
    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__(name="solve", daemon=True)
        self.work = work
        self.done = threading.Event()
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Keep what the work gives, or what it raises."""
        try:
            self.results.append(self.work())
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def outcome(self) -> Result:
        """What the work gave; raises what it raised."""
        if self.error:
            raise self.error
        return self.results[0]
