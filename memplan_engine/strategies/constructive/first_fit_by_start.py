"""Buffers as they come alive, each in the lowest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class FirstFitByStart(OrderFit):
    """What an allocator would do that sees the program only once, from the start."""

    fit: Fit = Fit.FIRST

    name: ClassVar[str] = "first_fit_by_start"
    description: ClassVar[str] = "as buffers come alive, lowest hole first"
    source: ClassVar[str] = "Poletto & Sarkar 1999, linear scan, for bytes instead of registers"

    def order(self, prepared: Prepared) -> Ints:
        """By start."""
        return orders.by_start(prepared)
