"""Which strategy found a plan of a portfolio, so that its decisions can be replayed."""

from __future__ import annotations

from memplan_engine.plan import Plan
from memplan_engine.strategies.base import Strategy
from memplan_engine.strategies.constructive.linear_scan import LinearScan, Naive
from memplan_engine.strategies.constructive.order_fit import OTHERS, STARTS, TRIES, OrderFit
from memplan_engine.strategies.constructive.orders import planner_words
from memplan_engine.strategies.exact.exact_search import Exact


def found_by(plan: Plan) -> tuple[str, str]:
    """What part of a portfolio `plan` comes from, "size × first fit", and what was done with it since,
    "repaired"; "" for nothing, and for a plan of no portfolio."""
    began, _, since = str(dict(plan.parameters).get("found_by") or "").partition(", ")
    return began, since


def found_words(plan: Plan) -> tuple[str, str]:
    """`found_by` for people: "largest first, first fit"."""
    began, since = found_by(plan)
    return planner_words(began), since


def finder(plan: Plan) -> Strategy | None:
    """The strategy that `plan` comes from by `found_by`; None where that takes no decision one by one."""
    began, _ = found_by(plan)
    for order, fit in (*TRIES, *STARTS, *OTHERS):
        if began == f"{order.name} × {fit} fit":
            return OrderFit(fit, name=began, by=order)
    others: dict[str, Strategy] = {
        "linear scan": LinearScan(),
        "no reuse": Naive(),
        "branch and bound": Exact(),
    }
    return others.get(began)
