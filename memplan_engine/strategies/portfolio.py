"""Every order with every fit, the quickest first: what search starts from."""

from __future__ import annotations

from memplan_engine.problem import Ints, Problem
from memplan_engine.strategies import orders
from memplan_engine.strategies.base import Budget, Placement
from memplan_engine.strategies.naive import Naive
from memplan_engine.strategies.order_fit import Fit, Order, is_plain, place_by, prepare

PORTFOLIO: tuple[tuple[str, Order], ...] = (
    ("size", orders.by_size),
    ("breadth", orders.by_breadth),
    ("area", orders.by_area),
    ("lifetime", orders.by_lifetime),
    ("conflicts", orders.by_conflicts),
    ("size, then lifetime", orders.by_size_then_lifetime),
    ("start", orders.by_start),
)
TRIES: tuple[tuple[str, Order, Fit], ...] = (
    ("start", orders.by_start, Fit.FIRST),
    *(
        (name, order, fit)
        for name, order in PORTFOLIO
        for fit in (Fit.FIRST, Fit.BEST)
        if (name, fit) != ("start", Fit.FIRST)
    ),
)
"""By far the quickest comes first: however early a budget ends, it leaves more than no reuse."""


def place_by_portfolio(problem: Problem, budget: Budget, target: int) -> Placement:
    """The best of 7 orders × 2 fits, or the first with an arena of at most `target` bytes.

    Never worse than no reuse, where it starts. Each try is abandoned when it cannot beat the best so far.
    When the budget ends, the best so far counts.
    """
    # What keeps holes is quick enough to be waited for, unless the budget was spent before we began.
    first = Budget() if is_plain(problem) and not budget.stopped else budget
    prepared = prepare(problem)
    best = Placement(Naive().place(problem, budget).offsets, "no reuse")
    arena = best.arena_bytes(problem)
    budget.report(best, problem)
    ordered: dict[str, Ints] = {}
    for place, (name, order, fit) in enumerate(TRIES):
        given = first if place == 0 else budget
        if given.stopped or arena <= target:
            break
        if name not in ordered:
            ordered[name] = order(prepared)
        offsets = place_by(prepared, ordered[name], fit, given, limit=arena - 1)
        if offsets is not None:
            best = Placement(offsets, f"{name} × {fit} fit")
            arena = best.arena_bytes(problem)
            budget.report(best, problem)
    return best
