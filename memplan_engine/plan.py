"""A plan: a placement of every buffer of a problem, with its strategy and its bound."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memplan_engine.bounds import Bound
from memplan_engine.problem import Ints, Problem

Parameter = str | int | float | bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Offsets in bytes, one a buffer of `problem` (read-only int64 array of n).

    `parameters` are the strategy's own. `seconds` is what placing took and is no part of equality.
    """

    problem: Problem
    offsets: Ints
    strategy: str
    bound: Bound
    parameters: tuple[tuple[str, Parameter], ...] = ()
    seconds: float = field(default=0.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        mine, theirs = (
            (p.problem.fingerprint, p.strategy, p.bound, p.parameters, p.offsets.tobytes())
            for p in (self, other)
        )
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.problem.fingerprint, self.strategy, self.offsets.tobytes()))

    @property
    def arena_bytes(self) -> int:
        """max(offset + size): what must be allocated."""
        return int((self.offsets + self.problem.size).max(initial=0))

    @property
    def gap(self) -> float:
        """Arena size over lower bound, minus 1; 0.0 for an empty problem."""
        return self.arena_bytes / self.bound.nbytes - 1 if self.bound.nbytes else 0.0

    @property
    def optimal(self) -> bool:
        """Whether the arena meets the lower bound, which proves that no placement is smaller."""
        return self.arena_bytes == self.bound.nbytes

    @property
    def packing_loss(self) -> int:
        """Arena size minus lower bound, bytes."""
        return self.arena_bytes - self.bound.nbytes

    @property
    def naive_bytes(self) -> int:
        """The arena without any reuse: every buffer behind the one before it, aligned."""
        return naive_bytes(self.problem)


def naive_bytes(problem: Problem) -> int:
    """The arena of the `naive` strategy: buffers one behind the other, each at its alignment."""
    end = 0
    if not len(problem):
        return 0
    if (problem.alignment == problem.alignment[0]).all():
        padded = problem.size + -problem.size % problem.alignment[0]
        return int(padded.sum() - padded[-1] + problem.size[-1])
    for size, alignment in zip(problem.size.tolist(), problem.alignment.tolist(), strict=True):
        end += -end % alignment + size
    return int(end)


def make_offsets(values: Ints | list[int]) -> Ints:
    """`values` as a read-only int64 array."""
    offsets = np.array(values, dtype=np.int64)
    offsets.flags.writeable = False
    return offsets
