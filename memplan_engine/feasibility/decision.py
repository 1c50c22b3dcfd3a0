"""Does a problem fit into a capacity? Yes with offsets, no with a proof, or not decided within the limits.

A proof names buffers that cannot fit on their own: they are a problem that anybody can solve again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from memplan_engine.analysis.claims import doubt
from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import Problem, select
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import SolveLimits, limits_were_budget, with_capacity
from memplan_engine.units import exact
from memplan_engine.verdict import Reason, Verdict, doubted, verdict_text


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """An answer to "does `plan.problem` fit into `capacity` bytes?". `plan` is the best one found.

    It fits if `placed` is FITS. If that is DOES_NOT_FIT, `plan.bound` is above the capacity, and its
    certificate names buffers that cannot fit on their own (`bounds.contributors`).
    """

    capacity: int
    plan: Plan

    @property
    def verdict(self) -> Verdict:
        """Return `placed`, but UNDECIDED where a run may hold something else (`reason`)."""
        return doubted(self.placed, doubt(self.plan.problem))[0]

    @property
    def reason(self) -> Reason | None:
        """Return why an undecided verdict stays undecided however long the search; None for no reason."""
        return doubted(self.placed, doubt(self.plan.problem))[1]

    @property
    def words(self) -> str:
        """Return "the arena fits in 4 MiB (4,194,304 B)", or what else the verdict is."""
        return verdict_text(self.verdict, self.reason, what="the arena", capacity=exact(self.capacity))

    @property
    def placed(self) -> Verdict:
        """Return whether the buffers of the problem fit."""
        if self.plan.arena_bytes <= self.capacity:
            return Verdict.FITS
        return Verdict.DOES_NOT_FIT if self.bound.nbytes > self.capacity else Verdict.UNDECIDED

    @property
    def whole(self) -> bool:
        """Return whether the arena fits together with the workspace of its ops, and no doubt is left."""
        return self.plan.total_bytes <= self.capacity and self.reason is None

    @property
    def bound(self) -> Bound:
        """The best bound that was proved."""
        return self.plan.bound


@limits_were_budget
def decide(
    problem: Problem, capacity: int, strategy: str = "auto", *, limits: SolveLimits | None = None
) -> Decision:
    """Look for a placement within `capacity` bytes, or for a proof that there is none.

    By default the search ends after `planner.DEFAULT_SECONDS`. With `SolveLimits(nodes=…)` and one thread the
    decision is the same on any machine.

    Raises
    ------
    InputError: a capacity below 0, or a strategy that decides none. MemplanError: no such strategy.
    PlanError: fixed offsets that collide.
    """
    if capacity < 0:
        raise InputError(problem.name, "capacity", str(capacity), "0 or more bytes")
    aimed = with_capacity(get_strategy(strategy), capacity)
    if aimed is None:
        raise InputError("--strategy", "", repr(strategy), f"with a capacity {' or '.join(deciding())}")
    return Decision(capacity, make_plan(problem, aimed, limits=limits))


def decides(strategy: str) -> bool:
    """Whether `strategy` can look for a placement within a capacity; raises MemplanError if there is none of
    that name."""
    return with_capacity(get_strategy(strategy), None) is not None


def deciding() -> tuple[str, ...]:
    """The names of the known strategies that can look for a placement within a capacity. `search` never
    proves that there is none."""
    return tuple(filter(decides, known_strategies()))


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The buffers of `problem`, live within the steps `[start, end)`, need `nbytes` bytes by themselves."""

    problem: Problem
    nbytes: int
    start: int
    end: int


def find_core(problem: Problem, bound: Bound, capacity: int) -> Core:
    """Of the buffers that the certificate of `bound` names, enough to pass `capacity` bytes.

    They keep their names, order, sizes, lifetimes, alignments, gaps and fixed offsets. Of a search's core all
    are taken, for it says nothing of fewer; else the largest, as few as it takes for their own lower bound to
    pass the capacity. Wants a bound above the capacity. O(n log² n).
    """
    rows, name = contributors(problem, bound), f"{problem.name}-core"
    if bound.kind is BoundKind.CORE:
        return Core(select(problem, np.sort(rows), name), bound.nbytes, bound.step, bound.until)

    def largest(count: int) -> Problem:
        return select(problem, np.sort(rows[:count]), name)

    counts = range(1, len(rows) + 1)
    enough = bisect_left(counts, True, key=lambda count: lower_bound(largest(count)).nbytes > capacity)
    core = largest(counts[min(enough, len(rows) - 1)])
    return Core(core, lower_bound(core).nbytes, bound.step, bound.step + 1)
