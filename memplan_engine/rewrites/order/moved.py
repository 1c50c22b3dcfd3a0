"""Which ops have moved between two orders of the same ops."""

from __future__ import annotations

from bisect import bisect_left

from memplan_engine.graph import Graph, Op


def moved_ops(before: Graph, after: Graph) -> tuple[Op, ...]:
    """The fewest ops of `after` that have to be moved to make its order of that of `before`, in the order of
    `after`; an op that only one of the graphs has is none. All others stand in the same order in both: a
    longest increasing subsequence of their places, O(n log n)."""
    place = {op.name: index for index, op in enumerate(before.ops)}
    common = [op for op in after.ops if op.name in place]
    # Of each length the smallest place that such a subsequence ends with, and whose place that is.
    ends: list[int] = []
    at: list[int] = []
    previous = [-1] * len(common)
    for index, op in enumerate(common):
        length = bisect_left(ends, place[op.name])
        previous[index] = at[length - 1] if length else -1
        ends[length : length + 1] = [place[op.name]]
        at[length : length + 1] = [index]
    stays, index = set(), at[-1] if at else -1
    while index >= 0:
        stays.add(index)
        index = previous[index]
    return tuple(op for index, op in enumerate(common) if index not in stays)
