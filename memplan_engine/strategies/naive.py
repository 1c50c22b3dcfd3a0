"""Every buffer behind the one before it: no reuse at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.kernels.stack import stack_up
from memplan_engine.problem import FREE, Problem
from memplan_engine.strategies.base import Budget, Placement


@dataclass(frozen=True, slots=True)
class Naive:
    """What memory would cost if nothing were ever freed; fixed offsets stay, the rest is stacked above."""

    name: ClassVar[str] = "naive"
    description: ClassVar[str] = "no reuse: every buffer its own bytes"
    source: ClassVar[str] = "the baseline of every paper"

    def place(self, problem: Problem, budget: Budget) -> Placement:
        """Stack the buffers in the problem's order."""
        is_fixed = problem.fixed != FREE
        offsets = np.array(problem.fixed)
        base = int((problem.fixed + problem.size)[is_fixed].max(initial=0))
        offsets[~is_fixed] = stack_up(problem.size[~is_fixed], problem.alignment[~is_fixed], base)
        return Placement(offsets)
