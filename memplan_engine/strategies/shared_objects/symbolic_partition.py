"""Largest buffers first, each in the fullest partition of disjoint lifetimes: tract's memory schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.kernels.shared_objects.fullest import assign_to_fullest
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.shared_objects.assignment import SharedObjects, lifetimes_and_sizes


@dataclass(frozen=True, slots=True)
class Partition(SharedObjects):
    """As `symbolic.partition` does it at a hint: the assignment stays valid whatever the sizes become."""

    name: ClassVar[str] = "partition"
    description: ClassVar[str] = (
        "whole partitions: largest buffer first, fullest free one; holds for all sizes"
    )
    source: ClassVar[str] = "tract (DeviceMemSchema)"

    def assign(self, problem: Problem, budget: Budget, trace: Trace | None = None) -> Ints:
        """By size, descending, ties in the problem's order, as a stable sort leaves them."""
        # Copies: numba compiles once for each mixture of read-only and writable arrays.
        order = np.argsort(-problem.size, kind="stable")
        objects: Ints = assign_to_fullest(order, *lifetimes_and_sizes(problem), budget.stop, trace)
        return objects
