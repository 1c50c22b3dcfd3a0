"""What people get when they do not choose: the portfolio at once, then branch and bound and repair."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

from memplan_engine.bounds import lower_bound
from memplan_engine.problem import Problem
from memplan_engine.strategies.base import Placement, SolveLimits
from memplan_engine.strategies.constructive.order_fit import place_by_portfolio, place_quickly
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.exact.exact_search import finish, raise_bound
from memplan_engine.strategies.exact.independent_parts import MOST_BUFFERS, independent
from memplan_engine.strategies.exact.race import Race
from memplan_engine.strategies.search.local_search import LocalSearch

ALONE_SECONDS = 2.5
"""How long branch and bound has all threads for itself: it settles most of what it can settle at once."""
ALONE_WITHOUT_RULES = 0.25
"""The same where there are gaps or padding: branch and bound is weaker without its rules of exchange, and
repair does what it cannot, above all where a gap needs some of the bytes."""
MANY = 1_000
"""Parts of more buffers that are full at nearly every step are lowered in steps first: branch and bound needs
seconds for each attempt at them."""
FIRST_SLICE = 1.0
"""Seconds of the first slices where branch and bound and repair share one thread; they double."""


@dataclass(frozen=True, slots=True)
class Auto:
    """The portfolio of orders × fits, then branch and bound as in `exact`, and soon repair as in `search`
    beside it: both at once on several threads, in turn on one. Ends when the arena meets the bound, fits into
    `capacity` (bytes) or is proved not to, or with the limits.

    Never worse than any order × fit that the limits had time for.
    """

    capacity: int | None = None

    anytime: ClassVar[bool] = True
    name: ClassVar[str] = "auto"
    description: ClassVar[str] = "the best of 7 orders × 2 fits, then exact and search, until proved optimal"
    source: ClassVar[str] = "memplan"

    def with_capacity(self, capacity: int | None) -> Auto:
        """The same, which ends when the arena fits into `capacity` bytes."""
        return replace(self, capacity=capacity)

    def place(self, problem: Problem, limits: SolveLimits) -> Placement:
        """The best placement found, with the bound that was proved; `found_by` says what found it."""
        spent = limits.stopped
        limits.prove(bound := lower_bound(problem))
        best = place_quickly(problem, limits, spent)
        target = max(bound.nbytes, self.capacity or 0)
        if limits.stopped or best.arena_bytes(problem) <= target:
            return replace(best, bound=bound)
        timeline = make_timeline(problem)
        largest = max((len(rows) for rows in independent(problem)), default=0)
        if largest > MOST_BUFFERS:
            # The whole portfolio would take seconds: repair has the best of it first.
            first = LocalSearch(timeline, limits, target, None)
            best = first.go_on(best, limits.child(limits.seconds))
        else:
            best = place_by_portfolio(problem, limits, target, best)
        bound = raise_bound(problem, best, bound, limits)
        target = max(bound.nbytes, self.capacity or 0)
        if limits.stopped or best.arena_bytes(problem) <= target:
            return replace(best, bound=bound)
        search = LocalSearch(timeline, limits, target, None)
        search.consider(best.offsets, best.found_by)
        if MANY < largest <= MOST_BUFFERS:
            search.lower_what_is_wide()
        race = Race(problem, search.best, bound, limits.seed, self.capacity)
        threads = limits.most_threads
        if race.parts:
            alone = limits.part(ALONE_SECONDS if _has_rules(problem) else ALONE_WITHOUT_RULES)
            with alone.running():
                race.run(alone, threads)
        if threads > 1 and not race.settled:
            _side_by_side(race, search, limits, threads)
        elif not race.settled:
            _in_turn(race, search, limits)
        if not limits.stopped and not race.decided:
            # Branch and bound has nothing more to try, as windows of gaps are beyond it.
            _repair(race, search, limits.child(limits.seconds))
        return finish(problem, race, limits, threads)


def _has_rules(problem: Problem) -> bool:
    """Whether branch and bound may exchange buffers, but for those at fixed offsets."""
    return not problem.gaps and not (problem.size % problem.alignment).any()


def _repair(race: Race, search: LocalSearch, limits: SolveLimits) -> None:
    """Let `search` go on from the best that there is, within `limits`."""
    search.bound = race.target
    race.adopt(search.go_on(race.best, limits))


def _side_by_side(race: Race, search: LocalSearch, limits: SolveLimits, threads: int) -> None:
    """Branch and bound and repair at once; who reaches the target ends the other."""
    exact, repair = limits.child(), limits.child(limits.seconds)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(race.run, exact, max(1, threads - 1))
        running.add_done_callback(lambda _: repair.cancel())
        _repair(race, search, repair)
        running.result()


def _in_turn(race: Race, search: LocalSearch, limits: SolveLimits) -> None:
    """Branch and bound and repair one after the other on one thread, in slices of time that grow."""
    for number in count(0 if _has_rules(race.problem) else 1):
        if limits.stopped or race.settled:
            return
        share = limits.part(FIRST_SLICE * 2 ** (number // 2), seed=number)
        with share.running():
            if number % 2 == 0:
                race.run(share)
            else:
                _repair(race, search, share)
