"""What all strategies for shared objects have in common: the rules of assigning buffers to whole objects.

A shared object is a piece of memory that one buffer after the other uses, never two at a time. The objects
lie one behind another in the arena, so an assignment is also a placement. Lifetimes count as a whole here: a
buffer keeps its object in its gaps, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.kernels.shared_objects.assign import NOBODY, lay_out
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Budget, Placement

SOURCE = "Pisarchyk & Lee 2020 (arXiv 2001.03288), shared objects; TFLite's GPU delegate"


@dataclass(frozen=True, slots=True)
class SharedObjects:
    """A strategy that assigns every buffer to an object. Subclasses say which one."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str] = SOURCE

    def assign(self, problem: Problem, budget: Budget) -> Ints:
        """The object of each buffer, objects numbered as they are made; NOBODY where the budget ended first.
        `problem` has no gaps."""
        raise NotImplementedError

    def obstacle(self, problem: Problem) -> str:
        """Why `problem` cannot be placed: a fixed offset would tear an object out of the row."""
        fixed = np.flatnonzero(problem.fixed != FREE)
        if not len(fixed):
            return ""
        buffer = problem[int(fixed[0])]
        return (
            f"buffer {buffer.name!r} is fixed at offset {buffer.fixed}, "
            "and shared objects lie one behind another wherever there is room"
        )

    def place(self, problem: Problem, budget: Budget) -> Placement:
        """Assign, and lay the objects one behind another.

        Raises
        ------
        PlanError: a buffer has a fixed offset, or the budget ends before the last one has its object.
        """
        reason = self.obstacle(problem)
        if reason:
            raise PlanError(f"{problem.name}: {self.name} cannot place it: {reason}")
        objects = self.assign(replace(problem, gaps={}), budget)
        if len(objects) != len(problem) or (objects == NOBODY).any():
            raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its object")
        by_object = np.argsort(objects, kind="stable")
        # Copies: numba compiles once for each mixture of read-only and writable arrays.
        offsets: Ints = lay_out(by_object, objects, np.array(problem.size), np.array(problem.alignment))
        return Placement(offsets, objects=objects)


def lifetimes_and_sizes(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Start, end and size of each buffer, as arrays that kernels take."""
    return np.array(problem.start), np.array(problem.end), np.array(problem.size)
