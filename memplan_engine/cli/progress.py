"""Waiting for a solve (Ctrl-C: the best plan so far), for a large file or for a model: a line says how far it
is."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from memplan_engine.strategies.base import Progress, SolveLimits
from memplan_engine.units import format_bytes, format_percent

if TYPE_CHECKING:
    from rich.live import Live

CTRL_C = "Ctrl-C"
TIME_LIMIT = "the time limit"
MOST_SIGNALS = 4096
"""More are not told apart; two are enough to end."""

EVERY = 1 / 8
"""Seconds between two looks at the progress."""
LARGE_BYTES = 16 << 20
"""A file that takes so long to read that people want to know how far it is."""
SECONDS_BETWEEN = 0.2

Result = TypeVar("Result")
Watch = Callable[[Progress], None]


def solve_in_sight(
    work: Callable[[], Result], limits: SolveLimits, *, quiet: bool = False
) -> tuple[Result, str]:
    """What `work` gives under `limits`, and what would have cut it short: CTRL_C or TIME_LIMIT.

    Where stderr is a terminal it shows a line meanwhile, unless `quiet`: somebody else shows one. The first
    Ctrl-C cancels the search, so that the strategy gives the best it has; a second one raises
    KeyboardInterrupt.
    """
    with _interrupts(limits) as count, _line(limits) as show:
        result = solve(work, limits, show if sys.stderr.isatty() and not quiet else None)
        return result, CTRL_C if count() else TIME_LIMIT


def solve(
    work: Callable[[], Result], limits: SolveLimits, watch: Watch | None = None, *, every: float = EVERY
) -> Result:
    """What `work` gives, which runs in another thread, limited by `limits`; what it raises is raised here.

    Python takes a signal only in its main thread, and there only between two steps of the interpreter: a main
    thread that is inside a kernel hears no Ctrl-C. One that waits here does, for kernels release the lock.
    While it waits, it calls `watch` with the progress so far every `every` seconds. Should `watch` or a
    signal handler raise, the search is cancelled and the work is left to itself: it is in a daemon thread,
    which keeps no process from ending.
    """
    done = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="solve", daemon=True).start()
    try:
        while not done.wait(every):
            if watch:
                watch(limits.progress())
    except BaseException:
        limits.cancel()
        raise
    if errors:
        raise errors[0]
    return results[0]


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


@contextmanager
def _line(limits: SolveLimits) -> Iterator[Callable[[Progress], None]]:
    """Gives what shows the progress: one line on stderr, begun the first time and gone in the end."""
    with ExitStack() as stack:
        lines: list[Live] = []

        def show(progress: Progress) -> None:
            from rich.text import Text

            if not lines:
                lines.append(stack.enter_context(_live()))
            line = Text(describe(progress, limits.stopped), no_wrap=True, overflow="ellipsis")
            lines[0].update(line, refresh=True)

        yield show


def _live() -> Live:
    """A line on stderr, or several, that are gone in the end."""
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False)


@contextmanager
def reading(file: Path) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what an importer may report its progress to, as it reads `file`; None where nobody looks, or the
    file is small."""
    try:
        large = file.stat().st_size >= LARGE_BYTES
    except OSError:
        large = False
    if not large or not sys.stderr.isatty():
        yield None
        return
    from rich.text import Text

    begun, shown = time.monotonic(), 0.0

    def report(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS_BETWEEN:
            shown = now
            live.update(Text(describe_reading(done, total, now - begun), no_wrap=True), refresh=True)

    with _live() as live:
        yield report


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Gives what is told of each stage of the work as it begins ("" while somebody else shows something).

    On a terminal the stage and its seconds are a line, which stays when it is over; elsewhere there is none.
    What a user's model prints meanwhile goes to stderr: stdout has the result alone.
    """
    with redirect_stdout(sys.stderr), _line_of_stages() as tell:
        yield tell


@contextmanager
def _line_of_stages() -> Iterator[Callable[[str], None]]:
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    stage, begun = "", time.monotonic()

    def line() -> Text:
        return Text(f"{stage} … {time.monotonic() - begun:.1f} s" if stage else "", style="dim")

    with Live(
        console=Console(stderr=True), get_renderable=line, transient=True, redirect_stdout=False
    ) as live:

        def tell(following: str) -> None:
            nonlocal stage, begun
            if stage:
                live.stop()
                live.console.print(f"{stage}: {time.monotonic() - begun:.1f} s", style="dim", highlight=False)
            stage, begun = following, time.monotonic()
            if stage:
                live.start()

        yield tell
        tell("")


def describe(progress: Progress, stopping: bool = False) -> str:
    """ "arena 1.2 MiB · bound 1 MiB · gap 20.0 % · 1.5 M nodes/s · 3.2 s", without what is not known."""
    parts = []
    if progress.arena_bytes is not None:
        parts.append(f"arena {format_bytes(progress.arena_bytes)}")
    # An arena below the bound is one of a rewritten graph, where several are tried.
    same = progress.gap is None or progress.gap >= 0
    if progress.bound_bytes is not None and same:
        parts.append(f"bound {format_bytes(progress.bound_bytes)}")
    if progress.gap is not None and same:
        parts.append(f"gap {format_percent(progress.gap)}")
    if progress.nodes:
        parts.append(f"{_rate(progress.nodes / max(progress.seconds, 1e-9))} nodes/s")
    parts.append(f"{progress.seconds:.1f} s")
    if stopping:
        parts.append("stopping (Ctrl-C ends at once)")
    return " · ".join(parts)


def describe_reading(done: int, total: int, seconds: float) -> str:
    """ "reading 312 MiB of 1 GiB · 30 % · 12.1 s"."""
    share = 100 * done // max(total, 1)
    return f"reading {format_bytes(done)} of {format_bytes(total)} · {share} % · {seconds:.1f} s"


def _rate(per_second: float) -> str:
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if per_second >= factor:
            return f"{per_second / factor:.1f}{unit}"
    return f"{per_second:.0f}"
