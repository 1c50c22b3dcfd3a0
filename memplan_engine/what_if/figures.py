"""What a plan comes to, for before and after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.pieces import cut
from memplan_engine.plan import Plan
from memplan_engine.profile import cut_time, live_bytes


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes of a plan: its arena is `demand`, the most bytes alive at one step, and `loss` to packing;
    `bound` is what no arena can be smaller than."""

    arena: int
    demand: int
    loss: int
    bound: int
    buffers: int


def figures_of(plan: Plan) -> Figures:
    """The figures of `plan`."""
    pieces = cut(plan.problem)
    live = live_bytes(cut_time(plan.problem, pieces), pieces.high - pieces.low)
    demand = int(np.max(live, initial=0))
    arena = plan.arena_bytes
    return Figures(arena, demand, arena - demand, plan.bound.nbytes, len(plan.problem))
