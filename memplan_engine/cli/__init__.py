"""`memplan`: the verbs. Exit 0 fine, 1 a check failed or a capacity is too small, 2 bad input or usage, 3 not
decided in time, 130 ended by Ctrl-C."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

INTERRUPTED = 130
MANY_OBJECTS = 200_000
HEAVY_VERBS = ("capture", "estimate", "dashboard")
"""The verbs that run other people's code in this process or start another one."""

__all__ = ["main"]


def main() -> None:
    """Run the CLI; a MemplanError becomes one line on stderr and exit code 2."""
    try:
        _start_quickly(sys.argv[1:2])
        from memplan_engine.cli.running import run

        run(sys.argv[1:])
    except KeyboardInterrupt:
        # At once: a kernel may still run in another thread, and the interpreter would take down what it uses.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(INTERRUPTED)


def _start_quickly(verb: list[str]) -> None:
    """Spare a short process what only long ones need, before anything large is imported."""
    # Imports make several 100,000 objects that all stay: looking for garbage among them, and once more at the
    # end, takes a fifth of the time in which a small problem is planned.
    gc.set_threshold(MANY_OBJECTS)
    atexit.register(gc.freeze)
    if "numpy" not in sys.modules and not set(verb) & set(HEAVY_VERBS):
        # No planner multiplies matrices: NumPy need not start threads for it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
