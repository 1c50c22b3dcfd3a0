"""The orders × fits that a search repairs, and the rest of the portfolio."""

from __future__ import annotations

from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import FitRule
from memplan_engine.strategies.constructive.portfolio import Try

STARTS: tuple[Try, ...] = (
    (orders.BY_BREADTH, FitRule.FIRST),
    (orders.BY_HEAT, FitRule.BEST),
    (orders.BY_SIZE, FitRule.FIRST),
    (orders.BY_SIZE_THEN_LIFETIME, FitRule.FIRST),
    (orders.BY_CONFLICTS, FitRule.FIRST),
)
"""What repair starts from: of these orders × fits at least one leaves only a few buffers above the bound."""
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
"""The rest of the portfolio, for what it is worth by itself."""
