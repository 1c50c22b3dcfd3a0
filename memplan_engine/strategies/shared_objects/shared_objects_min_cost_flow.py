"""Who takes over whose memory, so that the least memory has to be added: an assignment, solved exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.kernels.shared_objects.matching import NOBODY, cheapest_successors
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.shared_objects.assignment import SharedObjects, lifetimes_and_sizes

MOST_BUFFERS = 10_000
"""With more, the assignment takes minutes."""


@dataclass(frozen=True, slots=True)
class SharedObjectsMinCostFlow(SharedObjects):
    """TFLite's minimum-cost flow. What is least is the sum of what each buffer adds to the one before it in
    its object. What is small and grows again is counted twice, so the sizes are not the least there are."""

    name: ClassVar[str] = "shared_objects_min_cost_flow"
    description: ClassVar[str] = "whole objects: reuse as an assignment, least growth from buffer to buffer"

    def obstacle(self, problem: Problem) -> str:
        """Why `problem` cannot be placed: fixed offsets, or too many buffers."""
        if len(problem) > MOST_BUFFERS:
            return f"{len(problem):,} buffers, and more than {MOST_BUFFERS:,} would take minutes"
        # Not super(): a dataclass with slots is made anew, and the old class is no parent of the new one.
        return SharedObjects.obstacle(self, problem)

    def assign(self, problem: Problem, budget: Budget) -> Ints:
        """Chains of successors are the objects, numbered by the start of their first buffer."""
        start, end, size = lifetimes_and_sizes(problem)
        by_start, by_end = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
        ended = np.searchsorted(end[by_end], start[by_start], side="right")
        column = cheapest_successors(size[by_start], size[by_end], ended, budget.stop)
        if len(column) != len(problem):
            return np.full(len(problem), NOBODY, dtype=np.int64)
        return _chains(by_start, np.where(column == NOBODY, NOBODY, by_end[column]))


def _chains(by_start: Ints, before: Ints) -> Ints:
    """The object of each buffer; `before[i]` is the one whose memory the i-th buffer by start takes over."""
    objects = np.full(len(by_start), NOBODY, dtype=np.int64)
    objects[by_start[before == NOBODY]] = np.arange(np.count_nonzero(before == NOBODY))
    heir = np.full(len(by_start), NOBODY, dtype=np.int64)
    heir[before[before != NOBODY]] = by_start[before != NOBODY]
    heads = np.flatnonzero(objects != NOBODY)
    # All chains one step further at a time.
    while len(heads):
        heads = heads[heir[heads] != NOBODY]
        objects[heir[heads]] = objects[heads]
        heads = heir[heads]
    return objects
