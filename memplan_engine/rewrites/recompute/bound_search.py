"""The cut that proves most of the time of every schedule within a capacity."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from memplan_engine.graph import Phase
from memplan_engine.problem import Ints
from memplan_engine.rewrites.recompute.recompute_problem import RecomputeProblem
from memplan_engine.rewrites.recompute.time_bound import MORE, TimeCut, TimeCuts, priced_cuts
from memplan_engine.strategies.base import SolveLimits

STEPS = 48
"""Steps at which cuts are made: high ones, far from each other. Chosen by hand."""


@dataclass(slots=True, eq=False)
class BoundSearch:
    """The best cuts at one of `steps`, for one capacity after another."""

    cuts: TimeCuts
    steps: list[int]
    _found: list[TimeCut] = field(default_factory=list)

    def bound(self, capacity: int, limits: SolveLimits) -> tuple[TimeCut, bool]:
        """The cut that proves most of every schedule within `capacity`, and whether it is proved that there
        is none, however long it takes."""
        if not self.steps:
            return self.cuts.cut(0, 0.0), False
        most = self._tightest(self.cuts.problem.dearest, capacity, limits)
        if most.nbytes > capacity:
            # What is made again at one moment takes no more than all ops once: no choice has so few bytes.
            return most, most.least_extra(capacity) > self.cuts.problem.total
        known: dict[int, TimeCut] = {}
        # From where most bytes are needed, and from where torch has its boundary, to what proves more.
        for place in (most.at, self.steps[0]):
            while place not in known and not (known and limits.stopped):
                known[place] = max(
                    priced_cuts(self.cuts, place, capacity), key=lambda cut: cut.least_extra(capacity)
                )
                place = self._tightest(known[place].price, capacity, limits).at
        self._found += known.values()
        return max(known.values(), key=lambda cut: cut.least_extra(capacity)), False

    def known(self, capacity: int) -> int:
        """What was found for any capacity says of every schedule within this one, ns."""
        return max((cut.least_extra(capacity) for cut in self._found), default=0)

    def least_bytes(self, limits: SolveLimits) -> tuple[TimeCut, int]:
        """The live bytes that every schedule needs, however long it takes, and the cut that proves it: with
        fewer it would have to run again for more than all ops take once, at one moment."""
        if not self.steps:
            return self.cuts.cut(0, 0.0), 0
        cut = self._tightest(self.cuts.problem.dearest, 0, limits)
        return cut, max(0, ceil((cut.value - self.cuts.problem.total) / (cut.price * MORE)))

    def _tightest(self, price: float, capacity: int, limits: SolveLimits) -> TimeCut:
        """Of the cuts at `price` the one that proves most."""
        found: list[TimeCut] = []
        for at in self.steps:
            if not (found and limits.stopped):
                found.append(self.cuts.cut(at, price))
        return max(found, key=lambda cut: cut.value - price * capacity)


def high_steps(problem: RecomputeProblem, live: Ints) -> list[int]:
    """The first step of the backward pass, the highest step, and others that are high and far from these."""
    phases = (op.phase for op in problem.graph.ops)
    backward = next((step for step, phase in enumerate(phases) if phase is Phase.BACKWARD), None)
    highest = int(live.argmax())
    chosen = [highest] if backward in (None, highest) else [backward, highest]
    apart = max(1, len(live) // (4 * STEPS))
    # When several ops that fill a storage have run first is not one moment.
    several = np.array([len(own) > 1 for own in problem.members])
    chosen = [step for step in chosen if not several[step]]
    for step in np.argsort(-live, kind="stable").tolist():
        if len(chosen) >= STEPS:
            break
        if several[step]:
            continue
        if all(abs(step - other) >= apart for other in chosen):
            chosen.append(step)
    return chosen
