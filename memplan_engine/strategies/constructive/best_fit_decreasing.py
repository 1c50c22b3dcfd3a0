"""XLA's best-fit heap: largest first, ties by lifetime, each in the tightest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class BestFitDecreasing(OrderFit):
    """Differs from greedy by size only in its tie-break."""

    fit: Fit = Fit.BEST

    name: ClassVar[str] = "best_fit_decreasing"
    description: ClassVar[str] = "largest first, then longest-lived, tightest hole"
    source: ClassVar[str] = "XLA, GlobalDecreasingSizeBestFitHeap, spatial order (heap_simulator.cc)"

    def order(self, prepared: Prepared) -> Ints:
        """By size, then by lifetime, descending."""
        return orders.by_size_then_lifetime(prepared)
