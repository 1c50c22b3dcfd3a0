"""Order × fit: the frame that all constructive strategies share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive import online, place
from memplan_engine.kernels.constructive.gap_tree import effort, tree_place
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.orders import Order
from memplan_engine.strategies.constructive.timeline import Timeline, kernel_columns, make_timeline

NO_LIMIT = 2**63 - 1


class FitRule(StrEnum):
    """The rule for choosing a hole."""

    FIRST = "first"
    BEST = "best"
    TOP = "top"


_KERNEL_FIT = {FitRule.FIRST: place.FIRST_FIT, FitRule.BEST: place.BEST_FIT, FitRule.TOP: place.TOP}


def place_by(
    timeline: Timeline, order: Ints, fit: FitRule, limits: SolveLimits, limit: int = NO_LIMIT
) -> Ints | None:
    """Place the buffers in `order` by the rule `fit`, those with fixed offsets before all others.

    Returns the offsets in bytes, or None when the arena would pass `limit` bytes or the limits stopped it.
    """
    problem = timeline.problem
    if fit is FitRule.FIRST and _is_online(problem, order):
        return None if limits.stopped else place_online(problem, order, limits, limit)
    is_fixed = problem.fixed[order] != FREE
    order = np.concatenate([order[is_fixed], order[~is_fixed]])
    in_tree = timeline.cell != effort.RUNS
    kernel = tree_place.place_in_tree if in_tree else place.place_in_order
    return if_complete(
        kernel(
            order,
            *kernel_columns(timeline),
            np.array(problem.fixed),
            _KERNEL_FIT[fit],
            timeline.cell if in_tree else timeline.width,
            limit,
            limits.stop,
        )
    )


def if_complete(offsets: Ints) -> Ints | None:
    """`offsets` as a kernel gives them, None where it ended before all buffers had theirs."""
    return None if (offsets == place.UNPLACED).any() else offsets


def _is_online(problem: Problem, order: Ints) -> bool:
    """Whether `order` is that of time and every buffer is a plain rectangle: then holes can be kept."""
    return is_plain(problem) and bool((np.diff(problem.start[order]) >= 0).all())


def is_plain(problem: Problem) -> bool:
    """Whether every buffer is a rectangle without gaps that may lie anywhere."""
    return not problem.gaps and bool((problem.fixed == FREE).all())


def place_online(problem: Problem, order: Ints, limits: SolveLimits, limit: int = NO_LIMIT) -> Ints | None:
    """First fit of plain buffers in `order`, which is by start; None as `place_by`, but however little time
    there is, only where it takes seconds."""
    return if_complete(online.first_fit_by_start(*_columns(problem, order), limit, limits.stop))


def place_in_slots(problem: Problem, order: Ints) -> Ints | None:
    """Slots of fixed sizes for plain buffers in `order`, which is by start; None if they pass 2^63."""
    return if_complete(online.place_in_slots(*_columns(problem, order)))


def _columns(problem: Problem, order: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """What the kernels for plain buffers take, as copies that may be written to."""
    start, end, size, alignment = (
        np.array(column) for column in (problem.start, problem.end, problem.size, problem.alignment)
    )
    return np.array(order), start, end, size, alignment


@dataclass(frozen=True, slots=True)
class OrderFit:
    """A strategy that is one order and one fit: its replay has key and pseudo-code from `by`.

    A subclass may override `order` instead; its replay then says nothing of what it sorts by.
    """

    fit: FitRule = FitRule.BEST
    _: KW_ONLY
    name: str = ""
    description: str = ""
    source: str = ""
    by: Order | None = field(default=None, repr=False)

    def order(self, timeline: Timeline) -> Ints:
        """The buffers in the order in which they are placed."""
        if self.by is None:
            raise NotImplementedError
        return self.by(timeline)

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """Place all buffers; raises PlanError when the limits end it before the last one has its offset."""
        timeline = make_timeline(problem)
        offsets = place_by(timeline, self.order(timeline), self.fit, limits)
        if offsets is None:
            raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its offset")
        return Placement(offsets)
