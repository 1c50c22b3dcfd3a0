"""The orders × fits that a search repairs, and the rest of the portfolio."""

from __future__ import annotations

import numpy as np

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, Order, Prepared


def by_heat(prepared: Prepared) -> Ints:
    """Those alive at the busiest step first, and so on downwards; of equals the largest size × lifetime."""
    problem = prepared.problem
    _, live = orders.busiest_sections(prepared)
    area = problem.size.astype(np.float64) * (problem.end - problem.start)
    return np.lexsort((problem.start, -area, -live))


STARTS: tuple[tuple[str, Order, Fit], ...] = (
    ("breadth", orders.by_breadth, Fit.FIRST),
    ("heat", by_heat, Fit.BEST),
    ("size", orders.by_size, Fit.FIRST),
    ("size, then lifetime", orders.by_size_then_lifetime, Fit.FIRST),
    ("conflicts", orders.by_conflicts, Fit.FIRST),
)
"""What repair starts from: of these orders × fits at least one leaves only a few buffers above the bound."""
OTHERS: tuple[tuple[str, Order, Fit], ...] = (
    ("area", orders.by_area, Fit.FIRST),
    ("lifetime", orders.by_lifetime, Fit.FIRST),
    ("size", orders.by_size, Fit.BEST),
    ("breadth", orders.by_breadth, Fit.BEST),
    ("size, then lifetime", orders.by_size_then_lifetime, Fit.BEST),
    ("area", orders.by_area, Fit.BEST),
    ("lifetime", orders.by_lifetime, Fit.BEST),
    ("conflicts", orders.by_conflicts, Fit.BEST),
    ("start", orders.by_start, Fit.BEST),
)
"""The rest of the portfolio, for what it is worth by itself."""
