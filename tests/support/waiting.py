"""Wait for an event, with a time limit that only a hang reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_SECONDS = 240.0
"""Below pytest's own time limit, so that the message of `wait_until` is the one that is printed."""


def wait_until(condition: Callable[[], object], look: Callable[[], object] = lambda: "") -> None:
    """Return once `condition()` is true.

    AssertionError: it is still false after HANG_SECONDS; the message contains `look()`.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {HANG_SECONDS:.0f} s in vain: {look()}"
        time.sleep(0.01)
