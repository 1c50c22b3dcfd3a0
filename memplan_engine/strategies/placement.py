"""What a strategy gives."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.bounds import Bound
from memplan_engine.problem import Ints, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Offsets in bytes, one a buffer; `found_by` says which part of a portfolio they come from.

    `objects` is the shared object of each buffer, 0 … k − 1, where the strategy assigns buffers to whole
    objects; None where it only chooses offsets. `bound` is what the strategy proved beyond `lower_bound`,
    None for nothing. `threads` says how many it used.
    """

    offsets: Ints
    found_by: str = ""
    objects: Ints | None = None
    bound: Bound | None = None
    threads: int = 1

    def arena_bytes(self, problem: Problem) -> int:
        """max(offset + size)."""
        return int((self.offsets + problem.size).max(initial=0))
