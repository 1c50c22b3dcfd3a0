"""Buffers with the most neighbours in time first, each in the lowest hole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.problem import Ints
from memplan_engine.strategies.constructive import orders
from memplan_engine.strategies.constructive.order_fit import Fit, OrderFit, Prepared


@dataclass(frozen=True, slots=True)
class GreedyByConflicts(OrderFit):
    """TVM's order. TVM stacks above every neighbour instead of filling holes: that is `fit=Fit.TOP`."""

    fit: Fit = Fit.FIRST

    name: ClassVar[str] = "greedy_by_conflicts"
    description: ClassVar[str] = "most conflicts first, lowest hole"
    source: ClassVar[str] = "TVM, unified static memory planner (usmp/algo/greedy.cc); there with fit=top"

    def order(self, prepared: Prepared) -> Ints:
        """By conflicts, then by size, descending."""
        return orders.by_conflicts(prepared)
