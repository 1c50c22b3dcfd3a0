"""Longest-lived buffers first, each in the lowest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class GreedyByLifetime(OrderFit):
    """Long rectangles at the bottom, so that short-lived ones can come and go above them."""

    fit: Fit = Fit.FIRST

    name: ClassVar[str] = "greedy_by_lifetime"
    description: ClassVar[str] = "longest-lived first, lowest hole"
    source: ClassVar[str] = "XLA, the temporal order of its best-fit heap (heap_simulator.cc), with first fit"

    def order(self, prepared: Prepared) -> Ints:
        """By lifetime, then by size, descending."""
        return orders.by_lifetime(prepared)
