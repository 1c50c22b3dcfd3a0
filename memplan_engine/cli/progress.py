"""Waiting for a solve: a live line while it runs, and Ctrl-C for the best plan so far."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, TypeVar

from memplan_engine.cli.solve_thread import solve
from memplan_engine.strategies.base import Progress, SolveLimits
from memplan_engine.units import format_bytes, format_percent

if TYPE_CHECKING:
    from rich.live import Live

CTRL_C = "Ctrl-C"
TIME_LIMIT = "the time limit"
MOST_SIGNALS = 4096
"""More are not told apart; two are enough to end."""

Result = TypeVar("Result")


def solve_in_sight(work: Callable[[], Result], limits: SolveLimits) -> tuple[Result, str]:
    """What `work` gives under `limits`, and what would have cut it short: CTRL_C or TIME_LIMIT.

    Where stderr is a terminal it shows a line meanwhile. The first Ctrl-C cancels the search, so that the
    strategy gives the best it has; a second one raises KeyboardInterrupt.
    """
    with _interrupts(limits) as count, ProgressLine(limits) as line:
        result = solve(work, limits, line.show if sys.stderr.isatty() else None)
        return result, CTRL_C if count() else TIME_LIMIT


@contextmanager
def _interrupts(limits: SolveLimits) -> Iterator[Callable[[], int]]:
    """Take Ctrl-C for `limits`; gives a function that tells how often it was pressed."""
    # Not a number: Python runs a handler inside of itself, too, and what the inner one adds to a sum while
    # the outer one works it out is lost.
    pressed: list[int] = []

    def cancel(number: int, frame: FrameType | None) -> None:
        pressed.append(max(1, arrived()))
        if sum(pressed) > 1:
            raise KeyboardInterrupt
        limits.cancel()

    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is signal.SIG_IGN:
        # Only the main thread may ask for signals; and a shell has a job in the background ignore Ctrl-C.
        yield lambda: 0
        return
    with _counted() as arrived:
        signal.signal(signal.SIGINT, cancel)
        try:
            yield lambda: sum(pressed)
        finally:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@contextmanager
def _counted() -> Iterator[Callable[[], int]]:
    """Gives a function that tells how many SIGINTs have come since it was last asked.

    Python runs a handler once for all signals of a kind that came while the main thread could not run, be it
    for the tenths of a second that one call of NumPy in another thread takes on a million buffers. What is
    written to the wakeup descriptor is a byte for each.
    """
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)

    def arrived() -> int:
        with suppress(BlockingIOError):
            return reading.recv(MOST_SIGNALS).count(signal.SIGINT)
        return 0

    try:
        yield arrived
    finally:
        signal.set_wakeup_fd(before)
        reading.close()
        writing.close()


class ProgressLine:
    """One line on stderr, drawn anew with each `show` and gone in the end."""

    def __init__(self, limits: SolveLimits) -> None:
        self.limits = limits
        self.live: Live | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the line; the first time, begin it."""
        from rich.text import Text

        line = Text(describe(progress, self.limits.stopped), no_wrap=True, overflow="ellipsis")
        if self.live is None:
            self.live = _begin()
        self.live.update(line, refresh=True)


def _begin() -> Live:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False)
    live.start()
    return live


def describe(progress: Progress, stopping: bool = False) -> str:
    """ "arena 1.2 MiB · bound 1 MiB · gap 20.0 % · 1.5 M nodes/s · 3.2 s", without what is not known."""
    parts = []
    if progress.arena_bytes is not None:
        parts.append(f"arena {format_bytes(progress.arena_bytes)}")
    if progress.bound_bytes is not None:
        parts.append(f"bound {format_bytes(progress.bound_bytes)}")
    if progress.gap is not None:
        parts.append(f"gap {format_percent(progress.gap)}")
    if progress.nodes:
        parts.append(f"{_rate(progress.nodes / max(progress.seconds, 1e-9))} nodes/s")
    parts.append(f"{progress.seconds:.1f} s")
    if stopping:
        parts.append("stopping (Ctrl-C ends at once)")
    return " · ".join(parts)


def _rate(per_second: float) -> str:
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if per_second >= factor:
            return f"{per_second / factor:.1f}{unit}"
    return f"{per_second:.0f}"
