"""Strategies that take their time, for tests of the jobs; entry points bring them, to the child as well."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from memplan_engine.bounds import lower_bound
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import Placement, SolveLimits
from tests.support.waiting import HANG_SECONDS

GREEDY_BY_SIZE = get_strategy("greedy_by_size")

BETTER_EVERY = 0.1
STEPS = 100
UNIT = 1 << 20
FEW = 10
"""Below this they are done at once: kernels are compiled by planning a tiny problem with every strategy."""
FINISH = "MEMPLAN_TEST_FINISH"
"""The variable that names the file on which `late_proof` waits."""


class _Slow:
    """Greedy by size lifted by 100 MiB, then one MiB lower every 0.1 s down to 1; a million nodes a second.

    Counts its own seconds, so that those in which it is suspended are seen: none of them is slept through.
    """

    anytime: ClassVar[bool] = True
    ends: ClassVar[float] = 0.0

    def is_over(self, spent: float) -> bool:
        signal = os.environ.get(FINISH)
        return bool(self.ends) and (Path(signal).exists() if signal else spent > self.ends)

    def place(self, problem, limits: SolveLimits) -> Placement:
        limits.prove(lower_bound(problem))
        base = GREEDY_BY_SIZE.place(problem, SolveLimits())
        spent = 0.0
        placement = base
        while not limits.stopped and len(problem) >= FEW and not self.is_over(spent):
            left = max(1, STEPS - int(spent / BETTER_EVERY))
            placement = Placement(base.offsets + left * UNIT, f"{left} left, seed {limits.seed}")
            limits.report(placement, problem)
            time.sleep(0.01)
            spent += 0.01
            limits.counter[0] = round(spent * 1e6)
        if limits.stopped:
            return placement
        limits.report(base, problem)
        return base


@dataclass(frozen=True, slots=True)
class SlowSearch(_Slow):
    name: ClassVar[str] = "slow_search"
    description: ClassVar[str] = "never ends by itself"
    source: ClassVar[str] = "tests"


@dataclass(frozen=True, slots=True)
class LateProof(_Slow):
    name: ClassVar[str] = "late_proof"
    description: ClassVar[str] = "gives greedy by size after half a second, or when a file appears"
    source: ClassVar[str] = "tests"
    ends: ClassVar[float] = 0.5


@dataclass(frozen=True, slots=True)
class Deaf(_Slow):
    name: ClassVar[str] = "deaf"
    description: ClassVar[str] = "does not hear a cancel"
    source: ClassVar[str] = "tests"

    def place(self, problem, limits: SolveLimits) -> Placement:
        base = GREEDY_BY_SIZE.place(problem, SolveLimits())
        limits.report(base, problem)
        if len(problem) >= FEW:
            time.sleep(min(HANG_SECONDS, limits.left))
        return base


ALL = (SlowSearch, LateProof, Deaf)


def write_distribution(folder: Path) -> Path:
    """A distribution in `folder` that brings them, as any other package would."""
    info = folder / "slow_strategies-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-strategies\nVersion: 1.0\n")
    lines = [f"{kind.name} = tests.support.slow_strategies_plugin:{kind.__name__}" for kind in ALL]
    (info / "entry_points.txt").write_text("\n".join(["[memplan.strategies]", *lines, ""]))
    return folder
