"""`memplan`: the verbs. Exit 0 fine, 1 a check failed or a capacity is too small, 2 bad input or usage, 3 not
decided in time, 130 ended by Ctrl-C, 143 terminated."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

from memplan_engine.errors import INTERRUPTED

MANY_OBJECTS = 200_000
HEAVY_VERBS = (
    *("capture", "estimate", "run", "observe", "devices", "zoo", "dashboard"),
    *("history record", "history bisect"),
)
"""The verbs that run other people's code in this process or start another one."""

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and end the process; a MemplanError becomes one line on stderr and exit code 2."""
    heavy = bool({" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])} & set(HEAVY_VERBS))
    # Terminated, or without its terminal, a run ends as by an error: what it has started and its temporary
    # folders go with it.
    for ending in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(ending, _end)
    try:
        _open_streams()
        _start_quickly(heavy)
        from memplan_engine.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            print("memplan: interrupted before there was a result", file=sys.stderr)
        _leave(INTERRUPTED)
    except _Ended as ended:
        sys.exit(128 + ended.number)
    if heavy or "torch" in sys.modules:
        # Other people's code, as PyTorch itself, may have left something to be done at the end.
        sys.exit(code)
    _leave(code)


class _Ended(BaseException):
    """The process was asked to end, by the signal of `number`. No SystemExit, which a model's own code may
    raise, and which is an error of the model's then."""

    def __init__(self, number: int) -> None:
        self.number = number


def _end(number: int, frame: object) -> NoReturn:
    raise _Ended(number)


def _open_streams() -> None:
    """Let those of stdin, stdout and stderr that are closed lead nowhere: else the next file that is opened
    would get such a number, and what is printed would go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one; for children, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _start_quickly(heavy: bool) -> None:
    """Spare a short process what only long ones need, before anything large is imported."""
    # Imports make several 100,000 objects that all stay: looking for garbage among them takes a fifth of the
    # time in which a small problem is planned.
    gc.set_threshold(MANY_OBJECTS)
    if "numpy" not in sys.modules and not heavy:
        # No planner multiplies matrices: NumPy need not start threads for it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _leave(code: int) -> NoReturn:
    """End the process at once: taking the interpreter down piece by piece is a twentieth of a short run, and
    a kernel that still runs in another thread would lose what it uses."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)
