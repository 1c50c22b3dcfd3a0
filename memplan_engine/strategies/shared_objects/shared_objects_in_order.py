"""Buffers as they come alive, each in the free shared object of the closest size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.kernels.shared_objects.assign import assign_from_pool
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.shared_objects.assignment import SharedObjects, lifetimes_and_sizes


@dataclass(frozen=True, slots=True)
class SharedObjectsInOrder(SharedObjects):
    """TFLite's greedy in order: a new object only when none is free, so never more than are alive at once."""

    name: ClassVar[str] = "shared_objects_in_order"
    description: ClassVar[str] = "whole objects: as buffers come alive, free object of the closest size"

    def assign(self, problem: Problem, budget: Budget, trace: Trace | None = None) -> Ints:
        """By start, then index. Of two equally close the larger; of equals the one made first among those
        large enough, the one made last among those that grow, as TFLite's sorted pool gives them."""
        by_start = np.argsort(problem.start, kind="stable")
        by_end = np.argsort(problem.end, kind="stable")
        objects: Ints = assign_from_pool(by_start, by_end, *lifetimes_and_sizes(problem), budget.stop, trace)
        return objects
