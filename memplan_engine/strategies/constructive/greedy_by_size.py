"""Largest buffers first, each in the tightest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class GreedyBySize(OrderFit):
    """Pisarchyk and Lee's greedy by size for offsets: usually optimal on inference graphs."""

    fit: Fit = Fit.BEST

    name: ClassVar[str] = "greedy_by_size"
    description: ClassVar[str] = "largest buffer first, tightest hole"
    source: ClassVar[str] = "Pisarchyk & Lee 2020 (arXiv 2001.03288), TFLite, AITemplate"

    def order(self, prepared: Prepared) -> Ints:
        """By size, descending."""
        return orders.by_size(prepared)
