"""Reading a large file: a line on a terminal says how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memplan_engine.units import format_bytes

LARGE_BYTES = 16 << 20
SECONDS_BETWEEN = 0.2


@contextmanager
def reading(file: Path) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what an importer may report its progress to; None where nobody looks, or the file is small."""
    try:
        large = file.stat().st_size >= LARGE_BYTES
    except OSError:
        large = False
    if not large or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    begun, shown = time.monotonic(), 0.0
    live = Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False)

    def report(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS_BETWEEN:
            shown = now
            live.update(Text(describe(done, total, now - begun), no_wrap=True), refresh=True)

    with live:
        yield report


def describe(done: int, total: int, seconds: float) -> str:
    """ "reading 312 MiB of 1 GiB · 30 % · 12.1 s"."""
    share = 100 * done // max(total, 1)
    return f"reading {format_bytes(done)} of {format_bytes(total)} · {share} % · {seconds:.1f} s"
