"""Every buffer behind the one before it: no reuse at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.plan import naive_offsets
from memplan_engine.problem import Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.orders import Order


@dataclass(frozen=True, slots=True)
class Naive:
    """What memory would cost if nothing were ever freed; fixed offsets stay, the rest is stacked above."""

    name: ClassVar[str] = "naive"
    description: ClassVar[str] = "no reuse: every buffer its own bytes"
    source: ClassVar[str] = "the baseline of every paper"
    by: ClassVar[Order] = orders.AS_GIVEN

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Stack the buffers in the problem's order."""
        return Placement(naive_offsets(problem))
