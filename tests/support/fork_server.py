"""Runs command lines in children of a warmed process, each within milliseconds, and kills them on the way.

Started as `python -m tests.support.fork_server`: a line of JSON asks for a run, as `Asked` has it, and a line
gives its exit code, negative for the signal that ended it.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from memplan_engine import system
from memplan_engine.cli.app import run
from tests import ROOT

WRITING = system.write_atomically.__code__, system.write_target.__code__


@dataclass(frozen=True)
class Asked:
    """A command line and the folder it runs in.

    The child may be killed before the line `at_line`, counted over all that write_atomically runs, or at the
    call `at_call`, counted over all Python functions of all threads, or be kept from writing files of more
    than `most` bytes. `warm`: run by the process itself, so that its children find everything imported.
    """

    arguments: Sequence[str]
    folder: str
    at_line: int = 0
    at_call: int = 0
    most: int = 0
    warm: bool = False


class ForkServer:
    """The warmed process, seen from outside."""

    def __init__(self, *before: str) -> None:
        """`before` is a command that ends by becoming the one given to it."""
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", __name__], cwd=ROOT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *arguments: str, folder: Path, **how: Any) -> int:
        """The exit code of a run of `arguments`; what it says is in the file `said` of `folder`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(Asked(arguments, str(folder), **how))) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def seen(self, path: Path) -> Path:
        """What the process sees at the absolute `path`, which may be in a namespace of its own."""
        return Path(f"/proc/{self._process.pid}/root{path}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def die_at(line: int, *functions: CodeType) -> None:
    """Have this process killed before the `line`-th line, from 1, that `functions` run."""
    left = line

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    sys.settrace(lambda frame, event, _: on_line if frame.f_code in functions else None)


def die_at_call(number: int) -> None:
    """Have this process killed at the `number`-th call of a Python function, from 1, in whichever thread."""
    calls = itertools.count(1)

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(on_event)
    sys.setprofile(on_event)


def _run(asked: Asked) -> int:
    os.chdir(asked.folder)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(said, number)
    os.close(said)
    return run(asked.arguments)


def _child(asked: Asked) -> None:
    if asked.at_line:
        die_at(asked.at_line, *WRITING)
    if asked.at_call:
        die_at_call(asked.at_call)
    if asked.most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked.most, asked.most))
    code = 99
    try:
        code = _run(asked)
    finally:
        os._exit(code)


def main() -> None:
    """Run what comes in, one after the other."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = Asked(**json.loads(line))
        if asked.warm:
            code = _run(asked)
        elif child := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        else:
            _child(asked)
        print(code, file=answers, flush=True)


if __name__ == "__main__":
    main()
