"""The busiest steps first, each in the tightest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class GreedyByBreadth(OrderFit):
    """Pisarchyk and Lee's greedy by breadth for offsets."""

    fit: Fit = Fit.BEST

    name: ClassVar[str] = "greedy_by_breadth"
    description: ClassVar[str] = "busiest step first, its largest buffers first, tightest hole"
    source: ClassVar[str] = "Pisarchyk & Lee 2020 (arXiv 2001.03288)"

    def order(self, prepared: Prepared) -> Ints:
        """By the breadth of the busiest step, then by size, descending."""
        return orders.by_breadth(prepared)
