"""A clock and timers of `SolveLimits` that a test moves, and a cancel that waits for a report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from memplan_engine.strategies import base
from memplan_engine.strategies.base import Progress, SolveLimits
from tests.support.waiting import HANG_SECONDS


class ManualTimer:
    """A `threading.Timer` that fires when its clock is moved past its time."""

    def __init__(self, clock: ManualClock, seconds: float, function: Callable[[], object]) -> None:
        self.clock, self.due, self.function = clock, clock.now + seconds, function
        self.daemon = False

    def start(self) -> None:
        self.clock.timers.append(self)

    def cancel(self) -> None:
        if self in self.clock.timers:
            self.clock.timers.remove(self)


class ManualClock:
    """Seconds that pass only in `advance`; `timers` are those that are waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[ManualTimer] = []

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and call what is due."""
        self.now += seconds
        for timer in [each for each in self.timers if each.due <= self.now]:
            timer.cancel()
            timer.function()


def install_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Return the clock that all limits use until the test ends."""
    clock = ManualClock()
    timer = lambda seconds, function: ManualTimer(clock, seconds, function)  # noqa: E731
    monkeypatch.setattr(base, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(base, "threading", SimpleNamespace(Timer=timer, Lock=threading.Lock))
    return clock


@contextmanager
def cancelled_at_first_placement(limits: SolveLimits) -> Iterator[None]:
    """Cancel `limits` from another thread as soon as there is a placement."""
    placed = threading.Event()

    def listen(progress: Progress) -> None:
        if progress.arena_bytes is not None:
            placed.set()

    def cancel() -> None:
        if placed.wait(HANG_SECONDS):
            limits.cancel()

    limits.listener = listen
    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        yield
    finally:
        placed.set()
        thread.join()
