"""Order × fit: the frame that all constructive strategies share, and all of them together as a portfolio."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive import online, place
from memplan_engine.kernels.constructive.gap_tree import effort, tree_place
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.linear_scan import LinearScan, Naive
from memplan_engine.strategies.constructive.orders import (
    BY_AREA,
    BY_BREADTH,
    BY_CONFLICTS,
    BY_HEAT,
    BY_LIFETIME,
    BY_SIZE,
    BY_SIZE_THEN_LIFETIME,
    BY_START,
    FitRule,
    Order,
    Timeline,
    kernel_columns,
    make_timeline,
)

NO_LIMIT = 2**63 - 1
_KERNEL_FIT = {FitRule.FIRST: place.FIRST_FIT, FitRule.BEST: place.BEST_FIT, FitRule.TOP: place.TOP}


def place_by(
    timeline: Timeline, order: Ints, fit: FitRule, limits: SolveLimits, limit: int = NO_LIMIT
) -> Ints | None:
    """Place the buffers in `order` by the rule `fit`, those with fixed offsets before all others.

    Returns the offsets in bytes, or None when the arena would pass `limit` bytes or the limits stopped it.
    """
    problem = timeline.problem
    # Of plain rectangles in the order of time, holes can be kept.
    if fit is FitRule.FIRST and is_plain(problem) and (np.diff(problem.start[order]) >= 0).all():
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


PORTFOLIO = (
    BY_SIZE,
    BY_BREADTH,
    BY_AREA,
    BY_LIFETIME,
    BY_CONFLICTS,
    BY_SIZE_THEN_LIFETIME,
    BY_START,
)
Try = tuple[Order, FitRule]
TRIES: tuple[Try, ...] = tuple((order, fit) for order in PORTFOLIO for fit in (FitRule.FIRST, FitRule.BEST))
STARTS: tuple[Try, ...] = (
    (BY_BREADTH, FitRule.FIRST),
    (BY_HEAT, FitRule.BEST),
    (BY_SIZE, FitRule.FIRST),
    (BY_SIZE_THEN_LIFETIME, FitRule.FIRST),
    (BY_CONFLICTS, FitRule.FIRST),
)
"""What a search repairs: of these orders × fits at least one leaves only a few buffers above the bound."""
OTHERS: tuple[Try, ...] = (
    (BY_AREA, FitRule.FIRST),
    (BY_LIFETIME, FitRule.FIRST),
    (BY_SIZE, FitRule.BEST),
    (BY_BREADTH, FitRule.BEST),
    (BY_SIZE_THEN_LIFETIME, FitRule.BEST),
    (BY_AREA, FitRule.BEST),
    (BY_LIFETIME, FitRule.BEST),
    (BY_CONFLICTS, FitRule.BEST),
    (BY_START, FitRule.BEST),
)
"""The rest, which a search tries only for what each is by itself."""


def without_empty(placement: Placement, problem: Problem) -> Placement:
    """`placement` with buffers of no bytes at 0, where they cannot raise the arena."""
    offsets = np.where((problem.size == 0) & (problem.fixed == FREE), 0, placement.offsets)
    return replace(placement, offsets=offsets)


def place_quickly(problem: Problem, limits: SolveLimits, spent: bool) -> Placement:
    """The better of first fit by start and linear scan, each far quicker than any other order × fit; no reuse
    where there are gaps or fixed offsets, or where the limits were `spent` from the beginning.

    However little time there is, each has about a second; where the limits end first fit after that, slots
    of fixed sizes are what is quick.
    """
    best = without_empty(Placement(Naive().place(problem, limits).offsets, "no reuse"), problem)
    if spent or not len(problem) or not is_plain(problem):
        limits.report(best, problem)
        return best
    by_start = np.argsort(problem.start, kind="stable")
    first_fit = place_online(problem, by_start, limits)
    if first_fit is None:
        tries = [(place_in_slots(problem, by_start), "slots")]
    else:
        tries = [(first_fit, "start × first fit")]
        with suppress(PlanError):
            tries.append((LinearScan().place(problem, limits).offsets, "linear scan"))
    for offsets, name in tries:
        placement = best if offsets is None else without_empty(Placement(offsets, name), problem)
        if placement.arena_bytes(problem) < best.arena_bytes(problem):
            best = placement
    limits.report(best, problem)
    return best


def place_by_portfolio(
    problem: Problem, limits: SolveLimits, target: int, first: Placement | None = None
) -> Placement:
    """The best of 7 orders × 2 fits, or the first with an arena of at most `target` bytes.

    Never worse than `first` (that of `place_quickly` unless given), where it starts. Each try is abandoned
    when it cannot beat the best so far. When the limits are reached, the best so far counts.
    """
    best = first or place_quickly(problem, limits, limits.stopped)
    timeline, arena = make_timeline(problem), best.arena_bytes(problem)
    ordered: dict[str, Ints] = {}
    for order, fit in TRIES:
        if limits.stopped or arena <= target:
            break
        if order.name not in ordered:
            ordered[order.name] = order(timeline)
        offsets = place_by(timeline, ordered[order.name], fit, limits, limit=arena - 1)
        if offsets is not None:
            best = without_empty(Placement(offsets, f"{order.name} × {fit} fit"), problem)
            arena = best.arena_bytes(problem)
            limits.report(best, problem)
    return best
