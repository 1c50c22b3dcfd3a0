"""Positional maxima one after the other, and of each the buffers that leave an object idle the least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.analysis.positional import positional_maxima
from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.kernels.shared_objects.objects import assign_by_distance
from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies.base import Budget
from memplan_engine.strategies.shared_objects.assignment import SharedObjects, lifetimes_and_sizes


@dataclass(frozen=True, slots=True)
class SharedObjectsBySizeImproved(SharedObjects):
    """Pisarchyk and Lee's greedy by size improved: objects are filled tightly in time, and may grow."""

    name: ClassVar[str] = "shared_objects_by_size_improved"
    description: ClassVar[str] = "whole objects: by positional maximum, then least idle time"

    def assign(self, problem: Problem, budget: Budget, trace: Trace | None = None) -> Ints:
        """By positional maximum, then idle steps to an object's lifetimes, then size, descending; ties by
        start, then index. The nearest object, of equals the largest, then the one made first."""
        maxima = positional_maxima(problem)
        position = np.searchsorted(-maxima, -problem.size, side="right") - 1
        order = np.lexsort((problem.start, position))
        objects: Ints = assign_by_distance(order, position, *lifetimes_and_sizes(problem), budget.stop, trace)
        return objects
