"""The few buffers that cannot fit into a capacity, as a problem of their own that anybody can solve again."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound
from memplan_engine.problem import Problem, select


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The buffers of `problem`, alive within the steps `[start, end)`, need `nbytes` bytes by themselves."""

    problem: Problem
    nbytes: int
    start: int
    end: int


def find_core(problem: Problem, bound: Bound, capacity: int) -> Core:
    """Of the buffers that the certificate of `bound` names, enough to pass `capacity` bytes.

    They keep their names, order, sizes, lifetimes, alignments, gaps and fixed offsets. Of a search's core all
    are taken, for it says nothing of fewer; else the largest, as few as it takes for their own lower bound to
    pass the capacity. Wants a bound above the capacity. O(n log² n).
    """
    rows, name = contributors(problem, bound), f"{problem.name}-core"
    if bound.kind is BoundKind.CORE:
        return Core(select(problem, np.sort(rows), name), bound.nbytes, bound.step, bound.until)

    def largest(count: int) -> Problem:
        return select(problem, np.sort(rows[:count]), name)

    counts = range(1, len(rows) + 1)
    enough = bisect_left(counts, True, key=lambda count: lower_bound(largest(count)).nbytes > capacity)
    core = largest(counts[min(enough, len(rows) - 1)])
    return Core(core, lower_bound(core).nbytes, bound.step, bound.step + 1)
