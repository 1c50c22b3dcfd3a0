"""The plan of a graph that a stage has rewritten, with what the stages before have done done to it again."""

from __future__ import annotations

from collections.abc import Callable

from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.rewrites.order.checked import checked_reorder
from memplan_engine.strategies.base import SolveLimits

NewLimits = Callable[[], SolveLimits]
"""Limits of the next search."""
PlanOf = Callable[[Graph], tuple[Graph, Plan]]
"""The plan of a graph, and the graph, in a better order where that is looked for."""


def plans_again(how: Preparation, limits: NewLimits, reorder: bool, in_place: bool) -> PlanOf:
    """What plans graphs prepared as `how` says, in a better order as well where `reorder` is true; `in_place`
    says whether that order may count on writes in place."""

    def plan_of(graph: Graph) -> tuple[Graph, Plan]:
        plan = make_plan(prepare(graph, how), "auto", limits=limits())
        if reorder:
            order = checked_reorder(graph, limits(), in_place=in_place, brief=True)
            if order.saved_bytes > 0:
                other = make_plan(prepare(order.graph, how), "auto", limits=limits())
                if other.arena_bytes < plan.arena_bytes:
                    return order.graph, other
        return graph, plan

    return plan_of
