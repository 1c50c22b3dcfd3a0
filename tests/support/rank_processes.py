"""Ranks as forks of one process that has imported torch once; each writes what it has seen to a file.

Started as `python -m tests.support.rank_processes`: a line of JSON asks for ranks, the arguments of
`_forked`, and a line of JSON is what is wrong with them, "" if nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from tests import ROOT

LOOK_SECONDS = 0.02
"""Between two looks at ranks that take seconds."""

Rows = list[tuple[str, int]]
"""Of each op its name and the bytes there."""


class RankProcesses:
    """The process that forks, seen from outside."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __call__(
        self,
        module: str,
        shared: str,
        script: Path,
        world: int,
        arguments: Sequence[str],
        seconds: float = 300,
    ) -> list[Rows]:
        """Of each rank what `main` of `module` writes; `shared` is how they meet, "" for a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            asked = module, shared or folder, str(script), world, list(arguments), folder, seconds
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            wrong = json.loads(self._process.stdout.readline())
            assert not wrong, wrong
            written = [json.loads(_out(folder, rank).read_text()) for rank in range(world)]
        return [[tuple(row) for row in rows] for rows in written]

    def close(self) -> None:
        """End it: what it forked is gone by then."""
        self._process.communicate()


def _out(folder: str, rank: int) -> Path:
    return Path(folder) / f"{rank}.out"


def _forked(
    module: str, shared: str, script: str, world: int, arguments: list[str], folder: str, seconds: float
) -> str:
    """What went wrong with the first rank that did not come to its end within `seconds`."""
    main = import_module(module).main
    ranks = {}
    for rank in range(world):
        words = [str(rank), str(world), shared, str(_out(folder, rank)), script, *arguments]
        said = Path(folder) / f"{rank}.said"
        ranks[os.fork() or _be_rank(main, words, said)] = said
    deadline = time.monotonic() + seconds
    try:
        while ranks:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                said = ranks.pop(child)
                if status:
                    return f"{said.stem}: {said.read_text()[-4000:]}"
            elif time.monotonic() > deadline:
                return f"not at their end within {seconds} s: {[each.stem for each in ranks.values()]}"
            else:
                time.sleep(LOOK_SECONDS)
        return ""
    finally:
        for child in ranks:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _be_rank(main: Callable[..., None], words: list[str], said: Path) -> int:
    """In the fork: what it says goes into a file, and it never comes back."""
    code = 1
    try:
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        main(*words)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_forked(*json.loads(line))), flush=True)
