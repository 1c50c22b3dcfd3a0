"""A graph as a question of what may wait on the host, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.kernels.offload.transfers import Gaps
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.recompute.lazily import sequence_live
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.rewrites.recompute.recompute_problem import nanoseconds_of

MOST_GAPS = 2_000
"""Gaps that are chosen among: those of the most bytes · time. A training step of 5,700 ops has fewer that are
worth a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class OffloadProblem:
    """The ops of `graph` in their order take `cost` ns each, and `live` bytes are live at each. `gaps` are
    the times in which a storage that an op makes is not touched, and `names` the storages of these."""

    graph: Graph
    live: Ints
    cost: Ints
    gaps: Gaps
    names: tuple[str, ...]

    @property
    def total(self) -> int:
        """What all ops take, ns, where nothing waits."""
        return int(self.cost.sum())

    def within(self, capacity: int) -> OffloadProblem:
        """The same with only those gaps that span a step with more than `capacity` bytes."""
        above = np.concatenate([[0], np.cumsum(self.live > capacity)])
        spans = above[self.gaps.end] - above[self.gaps.begin + 1] > 0
        # Behind a copy there has to be time for the way back; what takes longer than its gap only stalls.
        time = np.concatenate([[0], np.cumsum(self.cost)])
        idle = time[self.gaps.end] - time[self.gaps.begin + 1]
        worth = np.where(spans, self.gaps.size.astype(np.float64) * idle, -1.0)
        best = np.sort(np.argsort(-worth, kind="stable")[:MOST_GAPS])
        kept = best[spans[best]]
        names = tuple(self.names[place] for place in kept.tolist())
        g = self.gaps
        gaps = sorted_gaps(g.begin[kept], g.end[kept], g.size[kept], g.takes[kept])
        return OffloadProblem(self.graph, self.live, self.cost, gaps, names)


def sorted_gaps(begin: Ints, end: Ints, size: Ints, takes: Ints) -> Gaps:
    """Gaps, which are in the order of their begin, with the order of their ends."""
    by_end = np.argsort(end, kind="stable")
    place = np.empty_like(by_end)
    place[by_end] = np.arange(len(by_end))
    return Gaps(begin, end, size, takes, by_end, place)


def offload_problem(graph: Graph, seconds: Sequence[float], bandwidth: float) -> OffloadProblem:
    """What may be copied to the host and back in `graph`, whose ops take `seconds` each, where `bandwidth`
    bytes a second are copied in each direction.

    Raises
    ------
    InputError: not a time for each op, or one that is negative or not finite; no bandwidth above 0.
    """
    cost = nanoseconds_of(graph, seconds)
    if not (np.isfinite(bandwidth) and bandwidth > 0):
        raise InputError("bandwidth", "", str(bandwidth), "bytes a second, above 0")
    found = order_problem(graph, merge=False)
    o = found.arrays
    live = sequence_live(o, np.arange(len(graph.ops)))
    begin, end, of = _gaps(o)
    # In whole ns, rounded up exactly: the checker reckons so, too.
    sizes, back = np.unique(o.size[of], return_inverse=True)
    exact = [-(-(size * 10**9) // Fraction(bandwidth)) for size in sizes.tolist()]
    takes = np.array(exact, np.int64)[back]
    gaps = sorted_gaps(begin, end, o.size[of], takes)
    return OffloadProblem(graph, live, cost, gaps, tuple(found.storages[s] for s in of.tolist()))


def _gaps(o: OrderArrays) -> tuple[Ints, Ints, Ints]:
    """Of each pair of uses, or making and first use, with other ops between them: both, and the storage."""
    uses = np.concatenate([o.maker, o.users])
    storage = np.concatenate([np.arange(len(o.size)), np.repeat(np.arange(len(o.size)), np.diff(o.users_of))])
    order = np.lexsort((uses, storage))
    uses, storage = uses[order], storage[order]
    apart = (storage[1:] == storage[:-1]) & (uses[1:] > uses[:-1] + 1) & (o.size[storage[1:]] > 0)
    begin, end, of = uses[:-1][apart], uses[1:][apart], storage[1:][apart]
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order], of[order]
