"""In which order the ops of a graph run, and which of them again, so that it keeps to a capacity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from memplan_engine.analysis.op_costs import op_seconds
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.ordered import ONCE
from memplan_engine.rewrites.order.checked import checked_reorder
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.recomputed import AgainGraph, Recomputation
from memplan_engine.runtime.compiling.compile_options import CompileOptions
from memplan_engine.strategies.base import SolveLimits

KNOWN = ("aten.", "prims.")
"""Libraries of which it is known which operators draw random numbers."""
NEARER = 5
"""Halvings towards a capacity within which nothing was found. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class OpSchedule:
    """`graph` has the ops as they run, `again` of them for a second time, which takes `extra_seconds` of the
    `seconds` that all take once. `before` are the live bytes at the worst step of the order that was given;
    `capacity` was asked for, None where nothing was, and `least_bytes` are what every schedule needs, where
    none was found within it."""

    graph: Graph
    before: int
    again: int
    seconds: float
    extra_seconds: float
    capacity: int | None
    least_bytes: int = 0


def schedule_ops(graph: Graph, options: CompileOptions, *, in_place: bool) -> OpSchedule:
    """The schedule of `graph` with the fewest live bytes in which each op runs once; where that misses the
    capacity, the one within it whose second runs take least; where none is found, the nearest above it.

    With `in_place` orders are held against each other as `reuse` would write them in place.

    Raises
    ------
    InputError: a graph without ops. MemplanError: an order or a schedule that its checker refuses.
    """
    before, limit = peak_in_order(graph), options.seconds
    capacity = options.capacity_of(before)
    order = checked_reorder(graph, SolveLimits(limit), in_place=in_place)
    times = dict(zip((op.name for op in graph.ops), op_seconds(graph, options.device), strict=True))
    total = sum(times.values())
    if capacity is None or order.live_after <= capacity:
        return OpSchedule(order.graph, before, 0, total, 0.0, capacity)
    orders = [graph] if order.graph.ops == graph.ops else [order.graph, graph]
    searches = [Recomputation(each, [times[op.name] for op in each.ops]) for each in orders]
    found, least = _quickest(searches, capacity, limit), 0
    if found is None:
        least = searches[0].least_bytes(SolveLimits(limit))
        found = _nearest(searches, capacity, order.live_after, limit)
    if found is None:
        return OpSchedule(order.graph, before, 0, total, 0.0, capacity, least)
    chosen = checked_reorder(found.graph, SolveLimits(limit), in_place=in_place, brief=True).graph
    again = len(chosen.ops) - len(graph.ops)
    return OpSchedule(chosen, before, again, total, found.extra_seconds, capacity, least)


def with_unknown_once(graph: Graph, drawing: Collection[str]) -> Graph:
    """`graph` in which the ops that draw random numbers, `drawing` by name, run once and in their order, and
    with them each operator of a library of which it is not known whether it draws."""
    ops = (
        replace(op, kind=ONCE) if op.name in drawing or not op.kind.startswith(KNOWN) else op
        for op in graph.ops
    )
    return replace(graph, ops=tuple(ops))


def _quickest(searches: Sequence[Recomputation], capacity: int, seconds: float) -> AgainGraph | None:
    found = [each.within(capacity, SolveLimits(seconds)) for each in searches]
    return min((each for each in found if each), key=lambda each: each.extra_seconds, default=None)


def _nearest(
    searches: Sequence[Recomputation], capacity: int, peak: int, seconds: float
) -> AgainGraph | None:
    """The schedule nearest above `capacity`, found by halves of what lies between it and `peak`."""
    low, high, nearest = capacity, peak, None
    for _ in range(NEARER):
        middle = (low + high) // 2
        found = _quickest(searches, middle, seconds)
        if found is None:
            low = middle
        else:
            nearest, high = found, min(middle, found.peak_bytes)
    return nearest
