"""Buffers that take the most bytes × steps first, each in the lowest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class GreedyByArea(OrderFit):
    """The buffers that are hardest to place come first, by the area of their rectangles."""

    fit: Fit = Fit.FIRST

    name: ClassVar[str] = "greedy_by_area"
    description: ClassVar[str] = "largest size × lifetime first, lowest hole"
    source: ClassVar[str] = "MiniMalloc (Moffitt, ASPLOS 2023), its area order"

    def order(self, prepared: Prepared) -> Ints:
        """By size × lifetime, descending."""
        return orders.by_area(prepared)
