"""Largest buffers first, each in the smallest shared object that is free."""

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
class SharedObjectsBySize(SharedObjects):
    """Pisarchyk and Lee's greedy by size for shared objects. No object ever grows."""

    name: ClassVar[str] = "shared_objects_by_size"
    description: ClassVar[str] = "whole objects: largest buffer first, smallest free object"

    def assign(self, problem: Problem, budget: Budget, trace: Trace | None = None) -> Ints:
        """By size, descending; the object made first of equals."""
        order = orders.by_size(prepare(problem))
        by_start = np.argsort(problem.start, kind="stable")
        objects: Ints = assign_in_order(order, by_start, *lifetimes_and_sizes(problem), budget.stop, trace)
        return objects
