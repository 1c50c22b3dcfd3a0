"""The greedy strategies: each is one order with the fit that its source uses."""

from __future__ import annotations

from memplan_engine.strategies.constructive.order_fit import OrderFit
from memplan_engine.strategies.constructive.orders import (
    BY_AREA,
    BY_BREADTH,
    BY_CONFLICTS,
    BY_LIFETIME,
    BY_SIZE,
    BY_SIZE_THEN_LIFETIME,
    BY_START,
    FitRule,
)

GREEDY = (
    # Usually optimal on inference graphs.
    OrderFit(
        name="greedy_by_size",
        description="largest buffer first, tightest hole",
        source="Pisarchyk & Lee 2020 (arXiv 2001.03288), TFLite, AITemplate",
        by=BY_SIZE,
        fit=FitRule.BEST,
    ),
    OrderFit(
        name="greedy_by_breadth",
        description="busiest step first, its largest buffers first, tightest hole",
        source="Pisarchyk & Lee 2020 (arXiv 2001.03288)",
        by=BY_BREADTH,
        fit=FitRule.BEST,
    ),
    OrderFit(
        name="greedy_by_area",
        description="largest size × lifetime first, lowest hole",
        source="MiniMalloc (Moffitt, ASPLOS 2023), its area order",
        by=BY_AREA,
        fit=FitRule.FIRST,
    ),
    # Long rectangles at the bottom, so that short-lived ones can come and go above them.
    OrderFit(
        name="greedy_by_lifetime",
        description="longest-lived first, lowest hole",
        source="XLA, the temporal order of its best-fit heap (heap_simulator.cc), with first fit",
        by=BY_LIFETIME,
        fit=FitRule.FIRST,
    ),
    # TVM stacks above every neighbour instead of filling holes: that is FitRule.TOP.
    OrderFit(
        name="greedy_by_conflicts",
        description="most conflicts first, lowest hole",
        source="TVM, unified static memory planner (usmp/algo/greedy.cc); there with fit=top",
        by=BY_CONFLICTS,
        fit=FitRule.FIRST,
    ),
    # Differs from greedy by size only in its tie-break.
    OrderFit(
        name="best_fit_decreasing",
        description="largest first, then longest-lived, tightest hole",
        source="XLA, GlobalDecreasingSizeBestFitHeap, spatial order (heap_simulator.cc)",
        by=BY_SIZE_THEN_LIFETIME,
        fit=FitRule.BEST,
    ),
    # What an allocator would do that sees the program only once, from the start.
    OrderFit(
        name="first_fit_by_start",
        description="as buffers become live, lowest hole first",
        source="Poletto & Sarkar 1999, linear scan, for bytes instead of registers",
        by=BY_START,
        fit=FitRule.FIRST,
    ),
)
"""In the order in which people see them."""
