"""Orders of the ops that their checker has passed: the best one, and one that somebody wrote."""

from __future__ import annotations

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.graph import Graph
from memplan_engine.rewrites.order.check_reorder import check_reorder
from memplan_engine.rewrites.order.order_search import Tell
from memplan_engine.rewrites.order.reorder import Reordered, reorder
from memplan_engine.strategies.base import SolveLimits


def checked_reorder(
    graph: Graph,
    limits: SolveLimits | None = None,
    on_progress: Tell | None = None,
    *,
    in_place: bool = False,
    brief: bool = False,
) -> Reordered:
    """As `reorder`, which it calls. Raises MemplanError where `check_reorder` refuses what it gave."""
    found = reorder(graph, limits, on_progress, in_place=in_place, brief=brief)
    if breaches := check_reorder(graph, found.graph, found.certificate):
        raise MemplanError(f"{graph.name}: the order was refused by its checker: {breaches[0]}")
    return found


def check_order(graph: Graph, ordered: Graph, source: str) -> None:
    """Raise InputError of `source` for an order in which an op of `graph` would read or write something else
    than before, or draw other random numbers."""
    if breaches := check_reorder(graph, ordered):
        raise InputError(source, "the order", str(breaches[0]), "one that keeps what each op reads")
