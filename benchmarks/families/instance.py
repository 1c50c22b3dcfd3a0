"""What a benchmark packs: a problem, and what is known about its optimum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import numpy as np

from memplan_engine.bounds import lower_bound
from memplan_engine.problem import Ints, Problem, make_problem

Rectangle = tuple[int, int, int, int]
"""start, end (steps, half-open), offset, size (both in bytes)."""


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A problem without alignments, gaps and fixed offsets, which every peer can pack.

    `optimum` is the smallest arena in bytes where the construction gives it, and `witness` then a placement
    that needs no more. `target` is a capacity in bytes that somebody else's benchmark asks for.
    """

    name: str
    problem: Problem
    optimum: int | None = None
    witness: Ints | None = None
    target: int | None = None

    @property
    def load(self) -> int:
        """LOAD, bytes."""
        return lower_bound(self.problem).nbytes

    @property
    def bound(self) -> int:
        """What an arena is compared with: the optimum where it is known, or else LOAD."""
        return self.load if self.optimum is None else self.optimum

    @property
    def capacity(self) -> int:
        """The capacity to decide: the published one, else the known optimum, else LOAD."""
        return self.bound if self.target is None else self.target


def from_rectangles(name: str, rectangles: Iterable[Rectangle], optimum: int, seed: int = 0) -> Instance:
    """An instance whose optimal placement is `rectangles`, in an order that gives nothing away."""
    rows = list(rectangles)
    Random(seed).shuffle(rows)
    start, end, offset, size = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Instance(name, make_problem(start, end, size, name=name), optimum, offset)
