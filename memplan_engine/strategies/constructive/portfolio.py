"""Every order with every fit, the quickest first: what search starts from."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.linear_scan import LinearScan
from memplan_engine.strategies.constructive.naive import Naive
from memplan_engine.strategies.constructive.order_fit import (
    FitRule,
    is_plain,
    place_by,
    place_in_slots,
    place_online,
)
from memplan_engine.strategies.constructive.orders import Order
from memplan_engine.strategies.constructive.timeline import make_timeline

PORTFOLIO = (
    orders.BY_SIZE,
    orders.BY_BREADTH,
    orders.BY_AREA,
    orders.BY_LIFETIME,
    orders.BY_CONFLICTS,
    orders.BY_SIZE_THEN_LIFETIME,
    orders.BY_START,
)
Try = tuple[Order, FitRule]
TRIES: tuple[Try, ...] = tuple((order, fit) for order in PORTFOLIO for fit in (FitRule.FIRST, FitRule.BEST))
STARTS: tuple[Try, ...] = (
    (orders.BY_BREADTH, FitRule.FIRST),
    (orders.BY_HEAT, FitRule.BEST),
    (orders.BY_SIZE, FitRule.FIRST),
    (orders.BY_SIZE_THEN_LIFETIME, FitRule.FIRST),
    (orders.BY_CONFLICTS, FitRule.FIRST),
)
"""What a search repairs: of these orders × fits at least one leaves only a few buffers above the bound."""
OTHERS: tuple[Try, ...] = (
    (orders.BY_AREA, FitRule.FIRST),
    (orders.BY_LIFETIME, FitRule.FIRST),
    (orders.BY_SIZE, FitRule.BEST),
    (orders.BY_BREADTH, FitRule.BEST),
    (orders.BY_SIZE_THEN_LIFETIME, FitRule.BEST),
    (orders.BY_AREA, FitRule.BEST),
    (orders.BY_LIFETIME, FitRule.BEST),
    (orders.BY_CONFLICTS, FitRule.BEST),
    (orders.BY_START, FitRule.BEST),
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
