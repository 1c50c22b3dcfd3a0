"""What a plan comes to, for before and after."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.plan import Plan
from memplan_engine.profile import timeline_of
from memplan_engine.scope import Scope


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes of a plan: its arena is `demand`, the most bytes alive at one step, and `loss` to packing;
    `bound` is what no arena can be smaller than. `total` is the arena and the `workspace` of its ops, all
    that the `scope` knows of."""

    arena: int
    demand: int
    loss: int
    bound: int
    buffers: int
    workspace: int
    total: int
    scope: Scope


def figures_of(plan: Plan) -> Figures:
    """The figures of `plan`."""
    arena, load = plan.arena_bytes, timeline_of(plan.problem).load
    scope, workspace = plan.problem.scope, plan.workspace_bytes
    return Figures(
        arena, load, arena - load, plan.bound.nbytes, len(plan.problem), workspace, plan.total_bytes, scope
    )
