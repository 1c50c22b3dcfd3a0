"""Regions in pieces until the arena fits: what pieces are taken of, and the time that they take more."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.fitting.plan_again import NewLimits, PlanOf
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.profile import load_of
from memplan_engine.rewrites.chunk.choose import Chunked, ChunkedRegion, chunk_graph

TARGETS = 4
"""Live bytes that are tried, to meet an arena: alignment needs more, and writes in place fewer."""


@dataclass(frozen=True, slots=True)
class InPieces:
    """The `regions` that run in pieces, and the seconds that all ops take more for it, of `of`; None where
    nobody knows. Results have other last digits, so that nothing of it is a proof."""

    regions: tuple[ChunkedRegion, ...]
    extra_seconds: float | None
    of: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PiecesPoint:
    """`graph` in pieces in an arena of `plan`."""

    graph: Graph
    plan: Plan
    pieces: InPieces


def in_pieces(
    graph: Graph,
    planned: Plan,
    arena: int | None,
    times: OpTimes | None,
    plan_of: PlanOf,
    limits: NewLimits,
) -> PiecesPoint:
    """`graph`, whose plan is `planned`, in as few pieces as bring its arena to at most `arena` bytes; None:
    to as few bytes as can be. Where no pieces help it is the plan before."""
    lowest = PiecesPoint(graph, planned, InPieces((), 0.0))
    if graph.symbols or any(storage.held_by for storage in graph.storages):
        return lowest
    load = load_of(planned.problem).peak
    # As many live bytes more as the plan before saves by writes in place.
    target = None if arena is None else arena + max(0, load - planned.arena_bytes)
    for _ in range(TARGETS):
        found = _chunked(graph, target, limits)
        if found is None:
            break
        rewritten, plan = plan_of(found.graph)
        if plan.arena_bytes < lowest.plan.arena_bytes:
            seconds = _extra_seconds(graph, found.graph, times)
            of = "" if times is None else times.of
            lowest = PiecesPoint(rewritten, plan, InPieces(found.regions, seconds, of))
        over = plan.arena_bytes - (arena or 0)
        if arena is None or target is None or over <= 0 or found.peak_bytes > target or limits().stopped:
            break
        target = max(0, min(target, found.peak_bytes) - over)
    return lowest


def _chunked(graph: Graph, target: int | None, limits: NewLimits) -> Chunked | None:
    own = limits()
    return chunk_graph(graph, target, lambda: own.stopped or own.left <= 0)


def _extra_seconds(graph: Graph, rewritten: Graph, times: OpTimes | None) -> float | None:
    """What pieces take more: weights are read once for each, and there are more ops."""
    before = None if times is None else times.of_rewrite(graph)
    after = None if times is None else times.of_rewrite(rewritten)
    return None if before is None or after is None else max(0.0, sum(after) - sum(before))
