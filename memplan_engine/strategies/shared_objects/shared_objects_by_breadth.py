"""The busiest steps first, each buffer in the shared object that fits it best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.kernels.shared_objects.assign import assign_in_order
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import prepare
from memplan_engine.strategies.shared_objects.assignment import SharedObjects, lifetimes_and_sizes


@dataclass(frozen=True, slots=True)
class SharedObjectsByBreadth(SharedObjects):
    """Pisarchyk and Lee's greedy by breadth for shared objects: objects may grow."""

    name: ClassVar[str] = "shared_objects_by_breadth"
    description: ClassVar[str] = "whole objects: busiest step first, the free object that fits best"

    def assign(self, problem: Problem, budget: Budget, trace: Trace | None = None) -> Ints:
        """By the breadth of the busiest step, then by size, descending; the object made first of equals."""
        order = orders.by_breadth(prepare(problem))
        by_start = np.argsort(problem.start, kind="stable")
        objects: Ints = assign_in_order(order, by_start, *lifetimes_and_sizes(problem), budget.stop, trace)
        return objects
