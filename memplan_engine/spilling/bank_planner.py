"""Problem with banks → banked plan, or the buffers that show why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.banked.bank_core import BankCore, CoreKind
from memplan_engine.banked.bank_moves import has_moves
from memplan_engine.banked.banked_plan import (
    BankBound,
    BankBoundKind,
    BankedPlan,
    Objective,
    banks_of,
)
from memplan_engine.errors import InputError, PlanError
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.kernels.jit import interprets
from memplan_engine.kernels.types import Ints
from memplan_engine.plan import Plan
from memplan_engine.planner import hard_problem, make_plan
from memplan_engine.problem import Problem, int_column
from memplan_engine.profile import load_of
from memplan_engine.spilling.assignment_task import UNLIMITED, Task, make_task
from memplan_engine.spilling.bank_assignment import place
from memplan_engine.spilling.bank_cores import find_room_core, least_in_slowest, shrink
from memplan_engine.spilling.bank_packing import finish
from memplan_engine.spilling.bank_prices import Prices, find_prices, settle
from memplan_engine.spilling.bank_search import search
from memplan_engine.strategies.base import SolveLimits, Strategy

DEFAULT_SECONDS = 10.0
WARM_SECONDS = 0.1
MOST_SHRUNK = 64
"""Buffers of a core that a search found: of more none are left out."""
SHRINKING_SECONDS = 1.0
MOST_HALVINGS = 12
"""Of the capacity of the slowest bank, where its arena is what counts."""


@dataclass(frozen=True, slots=True, eq=False)
class BankDecision:
    """FITS with the best `plan` found, DOES_NOT_FIT with a `core`, or UNDECIDED with neither."""

    problem: Problem
    plan: BankedPlan | None = None
    core: BankCore | None = None

    @property
    def verdict(self) -> Verdict:
        """Yes, no, or neither."""
        if self.plan is not None:
            return Verdict.FITS
        return Verdict.UNDECIDED if self.core is None else Verdict.DOES_NOT_FIT


def plan_banks(
    problem: Problem,
    strategy: str | Strategy = "auto",
    *,
    objective: Objective = Objective.TRAFFIC,
    limits: SolveLimits | None = None,
) -> BankedPlan:
    """Place every buffer of `problem`, which has banks, in one of them; see `decide_banks`.

    Raises
    ------
    InputError: a problem without banks. PlanError: there is no room, or none was found in time.
    """
    decision = decide_banks(problem, strategy, objective=objective, limits=limits)
    if decision.plan is None:
        raise PlanError(f"{problem.name}: {told(decision)}")
    return decision.plan


def told(decision: BankDecision) -> str:
    """Why there is no plan, in a sentence."""
    core = decision.core
    if core is None:
        return "no assignment to its banks was found, and none was proved impossible"
    named = ", ".join(core.problem.names[:5]) + (" …" if len(core.problem) > 5 else "")
    where = " and ".join(core.banks)
    return {
        CoreKind.LARGEST: f"{named} has {core.nbytes:,} bytes, more than each of {where}",
        CoreKind.ROOM: f"{named} hold {core.nbytes:,} bytes at step {core.step}, and {where} "
        f"{'has' if len(core.banks) == 1 else 'have'} {core.capacity:,}",
        CoreKind.PACKING: f"{named} need an arena of {core.nbytes:,} bytes in {where}, which has "
        f"{core.capacity:,}",
        CoreKind.SEARCH: f"{named} do not fit into {where} in any way, as a search proved",
    }[core.kind]


def decide_banks(
    problem: Problem,
    strategy: str | Strategy = "auto",
    *,
    objective: Objective = Objective.TRAFFIC,
    limits: SolveLimits | None = None,
) -> BankDecision:
    """Assign each buffer to a bank and pack each bank with `strategy` within its capacity.

    TRAFFIC minimises what all accesses cost, PEAK the arena of the slowest bank. The limits are those of the
    whole; 10 s unless given.

    Raises
    ------
    InputError: a problem without banks, or in which buffers move already. MemplanError: no such strategy.
    PlanError: fixed offsets that collide in a bank.
    """
    banks_of(problem)
    if has_moves(problem):
        expected = "the graph that the plan was made from: its copies would stay whatever changes"
        raise InputError(problem.name, "", "a graph in which buffers move between banks already", expected)
    limits = limits or SolveLimits(DEFAULT_SECONDS)
    if not interprets(2 * len(problem)):
        # Kernels are loaded before the clock starts.
        make_plan(hard_problem(), strategy, limits=SolveLimits(WARM_SECONDS))
    with limits.running():
        task = make_task(problem)
        core = find_room_core(task)
        if core is not None:
            return BankDecision(problem, core=core)
        solve = _least_traffic if objective is Objective.TRAFFIC else _least_peak
        decision = solve(task, strategy, limits)
        if decision.plan is None:
            return decision
        plan = replace(decision.plan, seconds=limits.elapsed)
        return replace(decision, plan=replace(plan, cut_short=limits.stopped and not plan.optimal))


def _least_traffic(task: Task, strategy: str | Strategy, limits: SolveLimits) -> BankDecision:
    packed, prices = place(task, strategy, limits)
    target = task.dearest + 1 if packed is None else task.total(packed.bank_of)
    prices = _better_prices(task, prices, target, limits)
    bound = prices.bound
    best = None if packed is None else (packed.bank_of, packed.plans)
    if target > bound.value and not limits.stopped:
        found = search(task, prices, target, strategy, limits)
        if found.through and found.bank_of is None and packed is None:
            return BankDecision(task.problem, core=_search_core(task, strategy, limits))
        if found.bank_of is not None:
            best, target = (found.bank_of, found.plans), task.total(found.bank_of)
        least = target if found.through else found.least or 0
        if least > bound.value:
            bound = BankBound(least, BankBoundKind.SEARCH)
    return _decided(task, best, Objective.TRAFFIC, bound, strategy, limits)


def _least_peak(task: Task, strategy: str | Strategy, limits: SolveLimits) -> BankDecision:
    """Halve the capacity of the slowest bank between its bound and the best arena; then a search looks for
    one byte less, until there is none."""
    slowest = banks_of(task.problem).slowest
    decision = _least_traffic(task, strategy, limits.child(limits.left / 3 if limits.seconds else None))
    bound = least_in_slowest(task)
    if decision.plan is None:
        return decision
    best = (decision.plan.bank_of, decision.plan.plans)
    low, high = bound.value, best[1][slowest].arena_bytes
    for number in range(MOST_HALVINGS):
        if low >= high or limits.stopped:
            break
        middle = low if number == 0 else (low + high) // 2
        aimed = _aimed(task, slowest, middle)
        packed = None if find_room_core(aimed) else place(aimed, strategy, limits)[0]
        if packed is None:
            low = middle + 1
        else:
            best, high = (packed.bank_of, packed.plans), packed.plans[slowest].arena_bytes
    while bound.value < best[1][slowest].arena_bytes and not limits.stopped:
        aimed = _aimed(task, slowest, best[1][slowest].arena_bytes - 1)
        found = search(aimed, settle(aimed, np.zeros(aimed.shape)), aimed.dearest + 1, strategy, limits)
        if found.bank_of is not None:
            best = (found.bank_of, found.plans)
            continue
        if found.through:
            bound = BankBound(best[1][slowest].arena_bytes, BankBoundKind.SEARCH)
        break
    return _decided(task, best, Objective.PEAK, bound, strategy, limits)


def _aimed(task: Task, bank: int, capacity: int) -> Task:
    capacities = task.capacity.copy()
    capacities[bank] = min(capacity, int(capacities[bank]))
    return task.with_capacity(capacities)


def _better_prices(task: Task, prices: Prices, target: int, limits: SolveLimits) -> Prices:
    """More rounds, now that the target is known, where that may close the gap."""
    if prices.bound.value >= target or not (task.capacity < UNLIMITED).any() or limits.stopped:
        return prices
    more = find_prices(task, target, limits)
    return more if more.base * prices.scale > prices.base * more.scale else prices


def _decided(
    task: Task,
    best: tuple[Ints, tuple[Plan, ...]] | None,
    objective: Objective,
    bound: BankBound,
    strategy: str | Strategy,
    limits: SolveLimits,
) -> BankDecision:
    """The plan of the `best` assignment, if there is one."""
    if best is None:
        return BankDecision(task.problem)
    bank_of = int_column(best[0], "bank_of", task.problem.name)
    bank_of.flags.writeable = False
    plans = tuple(
        finish(plan, capacity, strategy, limits)
        for plan, capacity in zip(best[1], task.capacity.tolist(), strict=True)
    )
    return BankDecision(task.problem, BankedPlan(task.problem, bank_of, plans, objective, bound))


def _search_core(task: Task, strategy: str | Strategy, limits: SolveLimits) -> BankCore:
    """The buffers of a problem for which a search found no assignment, without those that do not matter."""
    impossible = _impossible(strategy, limits)
    everybody = np.arange(len(task.cost))
    problem = task.problem
    if len(problem) <= MOST_SHRUNK:
        problem = shrink(task, everybody, impossible)
    load = load_of(problem)
    banks = banks_of(problem)
    capacity = sum(bank.capacity or 0 for bank in banks.banks)
    return BankCore(problem, CoreKind.SEARCH, banks.names, load.peak, capacity, load.peak_step)


def _impossible(strategy: str | Strategy, limits: SolveLimits) -> Callable[[Problem], bool]:
    def impossible(problem: Problem) -> bool:
        task = make_task(problem)
        if find_room_core(task) is not None:
            return True
        share = limits.apart(min(SHRINKING_SECONDS, limits.left))
        with share.running():
            packed, prices = place(task, strategy, share)
            if packed is not None:
                return False
            found = search(task, prices, task.dearest + 1, strategy, share)
        return found.through and found.bank_of is None

    return impossible
