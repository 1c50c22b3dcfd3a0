"""The smallest arena with a proof, by branch and bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from memplan_engine.bounds import Bound, lower_bound
from memplan_engine.problem import Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio, place_quickly
from memplan_engine.strategies.exact.cores import heaviest_stack, shrink_core
from memplan_engine.strategies.exact.race import Race

SHRINK_SECONDS = 2.0
"""How long a core is made smaller at most, once all else is done."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Branch and bound over each independent part, from the lower bound upwards and from the best order × fit
    downwards at once: it ends when they meet. With `capacity` (bytes) it ends as soon as the plan fits, or is
    proved not to fit. Parts of more than `parts.MOST_BUFFERS` buffers keep their first placement.

    Where buffers have gaps in which they need some of their bytes, placements leave that room unused and
    proofs leave those bytes out: both hold, but may not meet.
    """

    capacity: int | None = None

    anytime: ClassVar[bool] = True
    name: ClassVar[str] = "exact"
    description: ClassVar[str] = "branch and bound, until the arena is proved to be the smallest"
    source: ClassVar[str] = "memplan; canonical placements and splitting after MiniMalloc (Moffitt, 2023)"

    def with_capacity(self, capacity: int | None) -> Exact:
        """The same, which ends when the arena fits into `capacity` bytes."""
        return replace(self, capacity=capacity)

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """The best placement found, with the bound that was proved; never worse than the portfolio."""
        spent = limits.stopped
        limits.prove(bound := lower_bound(problem))
        quick = place_quickly(problem, limits, spent)
        first = place_by_portfolio(problem, limits, max(bound.nbytes, self.capacity or 0), quick)
        bound = raise_bound(problem, first, bound, limits)
        race = Race(problem, first, bound, limits.seed, self.capacity)
        threads = limits.most_threads
        race.run(limits, threads)
        return finish(problem, race, limits, threads if race.parts else 1)


def raise_bound(problem: Problem, first: Placement, bound: Bound, limits: SolveLimits) -> Bound:
    """`bound`, or a better one where gaps give it at once and `first` leaves something to prove."""
    if limits.stopped or first.arena_bytes(problem) <= bound.nbytes:
        return bound
    stack = heaviest_stack(problem, bound.nbytes)
    if stack is None:
        return bound
    limits.prove(stack)
    return stack


def finish(problem: Problem, race: Race, limits: SolveLimits, threads: int) -> Placement:
    """What `race` has come to, its core made small in what is left of the time."""
    placement = replace(race.best, bound=race.bound, threads=threads)
    # Parts of several placements may be better together than any of them was.
    limits.report(placement, problem)
    seconds = min(SHRINK_SECONDS, limits.left)
    if limits.stopped or not seconds:
        return placement
    return replace(placement, bound=shrink_core(problem, race.bound, limits, seconds))
