"""The two that sort nothing: no reuse at all, and linear scan from a free list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive.free_list import UNPLACED, scan
from memplan_engine.kernels.constructive.trace import Trace
from memplan_engine.plan import naive_offsets
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.orders import AS_GIVEN, BY_START_THEN_END, FitRule, Order


@dataclass(frozen=True, slots=True)
class Naive:
    """What memory would cost if nothing were ever freed; fixed offsets stay, the rest is stacked above."""

    name: ClassVar[str] = "naive"
    description: ClassVar[str] = "no reuse: every buffer its own bytes"
    source: ClassVar[str] = "the baseline of every paper"
    by: ClassVar[Order] = AS_GIVEN

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Stack the buffers in the problem's order."""
        return Placement(naive_offsets(problem))


@dataclass(frozen=True, slots=True)
class LinearScan:
    """Wimmer and Mössenböck's linear scan as PyTorch's JIT memory planner has it.

    An active set and a free list. In order of start (then end, then index), each buffer takes the smallest
    free range that is large enough (`fit`; with `FitRule.FIRST` the lowest). Without one, the active buffer
    that ends last, if that is after this one and it is large enough, moves behind everything and leaves its
    place to this one. Else this one goes behind everything. Sizes count rounded up to the alignment, gaps as
    live.
    Buffers with fixed offsets keep them, and the scan begins above the topmost.
    """

    fit: FitRule = FitRule.BEST

    name: ClassVar[str] = "linear_scan"
    description: ClassVar[str] = "as buffers become live, tightest free range, later ends give way"
    source: ClassVar[str] = "Wimmer & Mössenböck 2005; PyTorch's JIT memory planner (pull request 64347)"
    by: ClassVar[Order] = BY_START_THEN_END

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Scan once: O(n × holes).

        Raises
        ------
        PlanError: `fit` is neither best nor first, so much moved up that offsets would pass 2^63, or the
            limits were reached first.
        """
        return Placement(self.scan(problem, limits))

    def scan(self, problem: Problem, limits: SolveLimits, trace: Trace | None = None) -> Ints:
        """The offsets; raises as `place`. In a `trace` buffers are numbered without the fixed ones."""
        if self.fit not in (FitRule.BEST, FitRule.FIRST):
            raise PlanError(f"{self.name}: fit {self.fit}: a free list knows only best and first")
        free = np.flatnonzero(problem.fixed == FREE)
        start, end, size, alignment = (
            column[free] for column in (problem.start, problem.end, problem.size, problem.alignment)
        )
        base = int(np.where(problem.fixed != FREE, problem.fixed + problem.size, 0).max(initial=0))
        offsets = np.array(problem.fixed)
        offsets[free] = scan(
            np.lexsort((end, start)),
            np.argsort(np.lexsort((start, end))),
            start,
            end,
            size + -size % alignment,
            alignment,
            base,
            self.fit is FitRule.BEST,
            limits.stop,
            trace,
        )
        if (offsets == UNPLACED).any():
            if limits.stopped:
                raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its offset")
            raise PlanError(f"{problem.name}: {self.name} moved buffers up until offsets would pass 2^63")
        return offsets
