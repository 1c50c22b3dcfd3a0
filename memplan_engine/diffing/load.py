"""Live bytes over time, asked for by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Sections, peak_step, timeline_of


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """The live bytes of each section of a problem's `steps` steps."""

    sections: Sections
    live: Ints
    steps: int

    @property
    def peak(self) -> int:
        """LOAD: the most bytes alive at a step."""
        return int(self.live.max(initial=0))

    @property
    def peak_step(self) -> int:
        """The first step with the most live bytes."""
        return peak_step(self.sections, self.live)

    def at(self, step: int) -> int:
        """Live bytes at `step`; 0 outside of the problem."""
        return int(self.live[self.sections.at(step)]) if 0 <= step < self.steps else 0

    def fullest(self, first: int, last: int) -> int:
        """The first step from `first` to `last`, both included, with the most live bytes."""
        low, high = self.sections.at(first), self.sections.at(last)
        if not 0 <= low <= high < len(self.live):
            return first
        fullest = low + int(np.argmax(self.live[low : high + 1]))
        return max(first, int(self.sections.bounds[fullest]))


def load_of(problem: Problem) -> Load:
    """The live bytes of `problem`: O(n log n)."""
    time = timeline_of(problem)
    return Load(time.sections, time.live, problem.steps)
