"""The orders × fits that a search repairs, and the rest of the portfolio."""

from __future__ import annotations

from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit
from memplan_engine.strategies.constructive.portfolio import Try

STARTS: tuple[Try, ...] = (
    (orders.BY_BREADTH, Fit.FIRST),
    (orders.BY_HEAT, Fit.BEST),
    (orders.BY_SIZE, Fit.FIRST),
    (orders.BY_SIZE_THEN_LIFETIME, Fit.FIRST),
    (orders.BY_CONFLICTS, Fit.FIRST),
)
"""What repair starts from: of these orders × fits at least one leaves only a few buffers above the bound."""
OTHERS: tuple[Try, ...] = (
    (orders.BY_AREA, Fit.FIRST),
    (orders.BY_LIFETIME, Fit.FIRST),
    (orders.BY_SIZE, Fit.BEST),
    (orders.BY_BREADTH, Fit.BEST),
    (orders.BY_SIZE_THEN_LIFETIME, Fit.BEST),
    (orders.BY_AREA, Fit.BEST),
    (orders.BY_LIFETIME, Fit.BEST),
    (orders.BY_CONFLICTS, Fit.BEST),
    (orders.BY_START, Fit.BEST),
)
"""The rest of the portfolio, for what it is worth by itself."""
