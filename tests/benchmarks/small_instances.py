"""The smallest instances that benchmarks are tried on, and how a solver is asked about them."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from benchmarks.families.instance import Instance
from benchmarks.solvers.catalogue import SOLVERS
from benchmarks.solvers.judge import judge
from benchmarks.solvers.protocol import Answer, Request
from benchmarks.solvers.question import request_of
from memplan_engine.problem import FREE, Gap, make_problem

TINY = Instance("tiny", make_problem([0, 0, 1], [1, 2, 2], [1, 2, 2]), optimum=4, target=4)


def verdict(name: str, answer: Answer, instance: Instance = TINY) -> str:
    """What the judge says of an answer by the solver `name`."""
    return judge(instance, SOLVERS[name], 1, answer).said


def request(instance: Instance, binary: Path | str = "", seconds: float = 5.0) -> Request:
    """What a solver is asked about `instance`."""
    return request_of(instance, seconds, binary=str(binary))


def program(folder: Path, body: str) -> Path:
    """A stand-in for MiniMalloc's binary."""
    path = folder / "program"
    path.write_text(
        f"#!{sys.executable}\nimport sys\noptions = dict(a[2:].split('=') for a in sys.argv[1:])\n{body}"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ALL_AT_ONCE = Instance(
    "all",
    make_problem(
        [0, 0, 2, 0],
        [3, 4, 4, 1],
        [48, 96, 32, 16],
        alignment=[32, 1, 64, 16],
        fixed=[FREE, FREE, FREE, 32],
        gaps={1: (Gap(0, 2, 16, 32), Gap(2, 3))},
    ),
)
"""Buffer 1 needs its bytes 16 to 32 in steps 0 and 1, nothing in step 2, all in step 3."""
