"""Problem with banks → a plan in which buffers may move between them, beside the one in which they stay."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.banked.bank_core import CoreKind
from memplan_engine.banked.banked_plan import (
    BankBound,
    BankBoundKind,
    BankedPlan,
    Objective,
)
from memplan_engine.errors import MemplanError, PlanError
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.kernels.jit import interprets
from memplan_engine.kernels.types import Ints
from memplan_engine.problem import Problem, int_column
from memplan_engine.spilling.assignment_task import UNLIMITED
from memplan_engine.spilling.bank_packing import finish
from memplan_engine.spilling.bank_planner import DEFAULT_SECONDS, BankDecision, decide_banks, told
from memplan_engine.spilling.bank_prices import Floats
from memplan_engine.spilling.moves.move_packing import PackedWays, pack_ways, staying
from memplan_engine.spilling.moves.move_prices import ROUNDS, MovePrices, find_move_prices
from memplan_engine.spilling.moves.move_sweep import NEVER, sweep_moves
from memplan_engine.spilling.moves.move_task import MoveTask, make_move_task
from memplan_engine.spilling.moves.move_ways import better_ways
from memplan_engine.strategies.base import SolveLimits, Strategy
from memplan_engine.verify.move_checks import check_moves

STILL_SHARE = 0.3
"""Of the time, for the plan without moves, with which the search for moves begins."""
WAYS_SHARE = 0.25
"""Of what is left, each time, for ways by live bytes; then they are packed."""
MOST_ATTEMPTS = 8
"""Of ways within less room, where packings miss the capacity."""


@dataclass(frozen=True, slots=True, eq=False)
class MoveDecision:
    """`still` is the decision without moves. `plan` is the best found with them, which may have none, and
    whose bound holds for every plan with moves; None where none was found."""

    problem: Problem
    still: BankDecision
    plan: BankedPlan | None = None

    @property
    def verdict(self) -> Verdict:
        """Yes, no, or neither: a core of a search or a packing says nothing of plans with moves."""
        if self.plan is not None:
            return Verdict.FITS
        core = self.still.core
        proved = core is not None and core.kind in (CoreKind.LARGEST, CoreKind.ROOM)
        return Verdict.DOES_NOT_FIT if proved else Verdict.UNDECIDED


def plan_moves(
    problem: Problem, strategy: str | Strategy = "auto", *, limits: SolveLimits | None = None
) -> BankedPlan:
    """The plan of `decide_moves`.

    Raises
    ------
    InputError: as `decide_moves` does. PlanError: there is no room, or none was found in time.
    """
    decision = decide_moves(problem, strategy, limits=limits)
    if decision.plan is None:
        raise PlanError(f"{problem.name}: {told_moves(decision)}")
    return decision.plan


def told_moves(decision: MoveDecision) -> str:
    """Why there is no plan, in a sentence."""
    if decision.verdict is Verdict.DOES_NOT_FIT:
        return told(decision.still)
    return "no plan with moves between its banks was found, and none was proved impossible"


def decide_moves(
    problem: Problem, strategy: str | Strategy = "auto", *, limits: SolveLimits | None = None
) -> MoveDecision:
    """Give each buffer a bank at each step of its life, with a copy wherever that changes, so that accesses
    and copies together cost least, and pack each bank with `strategy` within its capacity.

    The plan is one of the graph with the copies as ops, each with a step of its own; a buffer that moves is
    one buffer there for each stay in a bank. Constants stay. The limits are those of the whole; 10 s unless
    given.

    Raises
    ------
    InputError: a problem without banks, or without a graph whose ops say when each buffer is accessed; gaps,
    fixed offsets. MemplanError: no such strategy.
    """
    limits = limits or SolveLimits(DEFAULT_SECONDS)
    task = make_move_task(problem)
    if len(task.access) and not interprets(len(task.access)):
        # Kernels are loaded before the clock starts.
        task.route(
            task.everybody[:1],
            task.staying(task.everybody * 0),
            np.zeros(task.shape, dtype=np.int64),
            price=np.zeros(task.shape, dtype=np.int64),
            room=task.room,
            scale=1,
        )
    with limits.running():
        share = limits.apart(None if limits.seconds is None else limits.left * STILL_SHARE, limits.threads)
        still = decide_banks(problem, strategy, objective=Objective.TRAFFIC, limits=share)
        if still.core is not None and still.core.kind in (CoreKind.LARGEST, CoreKind.ROOM):
            return MoveDecision(problem, still)
        plan = _best(task, still.plan, strategy, limits)
        if plan is not None:
            wrong = check_moves(problem, plan)
            if wrong:
                raise MemplanError(f"{problem.name}: moves: {wrong[0]}; please report this")
            cut_short = limits.stopped and not plan.optimal
            plan = replace(plan, seconds=limits.elapsed, cut_short=cut_short)
    return MoveDecision(problem, still, plan)


def _best(
    task: MoveTask, still: BankedPlan | None, strategy: str | Strategy, limits: SolveLimits
) -> BankedPlan | None:
    best = None if still is None else staying(task, still)
    target = task.dearest if best is None else best.traffic
    swept = sweep_moves(task, limits)
    # Where the sweep is through, prices prove nothing more.
    prices = find_move_prices(task, target, limits, ROUNDS if swept is None else 0)
    bound, ways = prices.bound, None
    if swept is not None and swept[1] < NEVER:
        ways = swept[0]
        bound = BankBound(swept[1], BankBoundKind.SWEEP) if bound.value < swept[1] else bound
    if best is None or best.traffic > bound.value:
        best = _attempts(task, best, ways, prices, bound.value, strategy, limits)
    return None if best is None else _finished(task, best, bound, strategy, limits)


def _attempts(
    task: MoveTask, best: PackedWays | None, ways: Ints | None, prices: MovePrices, least: int,
    strategy: str | Strategy, limits: SolveLimits,
) -> PackedWays | None:  # fmt: skip
    """The best of several ways after packing, those of `ways` first. Where a packing misses the capacity,
    others are found within less room at the steps concerned, as `bank_assignment.place` does."""
    share, fits, misses = np.ones(task.shape), np.zeros(task.shape), np.ones(task.shape)
    begin = [] if best is None else [best.path]
    for number in range(MOST_ATTEMPTS):
        if number or ways is None:
            ways = _ways_within(task, share, begin, prices, least, limits)
        if ways is None:
            break
        reach = np.zeros(task.shape, dtype=np.int64)
        if best is None or task.cost(task.everybody, ways) < best.traffic:
            packed, reach = pack_ways(task, ways, strategy, limits)
            if packed is not None and (best is None or packed.traffic < best.traffic):
                best = packed
                begin.append(packed.path)
        missed = reach > task.capacity[:, None]
        if (number == 0 and not missed.any()) or limits.stopped:
            break
        if limits.left < limits.elapsed / MOST_ATTEMPTS or (best is not None and best.traffic <= least):
            break
        fits, misses = np.where(missed, fits, share), np.where(missed, share, misses)
        guess = share * task.capacity[:, None] / np.maximum(reach, 1)
        share = np.where(missed & (fits == 0), guess, (np.where(fits == 0, misses, fits) + misses) / 2)
    return best


def _ways_within(
    task: MoveTask, share: Floats, begin: list[Ints], prices: MovePrices, least: int, limits: SolveLimits
) -> Ints | None:
    """Cheap ways within this share of each capacity at each step, the cheapest where they can be swept."""
    limited = (task.capacity < UNLIMITED)[:, None]
    room = np.where(limited, (task.capacity[:, None] * share).astype(np.int64), task.room)
    aimed = replace(task, room=room)
    swept = sweep_moves(aimed, limits)
    if swept is not None:
        return swept[0] if swept[1] < NEVER else None
    part = limits.apart(None if limits.seconds is None else limits.left * WAYS_SHARE)
    with part.running():
        found = better_ways(aimed, begin, prices, part, least)
    return None if found is None else found[0]


def _finished(
    task: MoveTask, best: PackedWays, bound: BankBound, strategy: str | Strategy, limits: SolveLimits
) -> BankedPlan:
    """The plan, its banks as small as the strategy makes them, and the bound on its own steps."""
    plans = tuple(
        finish(plan, capacity, strategy, limits)
        for plan, capacity in zip(best.plans, task.capacity.tolist(), strict=True)
    )
    prices = tuple((bank, int(best.op_steps[step]), price) for bank, step, price in bound.prices)
    bank_of = int_column(best.bank_of, "bank_of", task.problem.name)
    bank_of.flags.writeable = False
    own = replace(bound, prices=prices)
    return BankedPlan(best.problem, bank_of, plans, Objective.TRAFFIC, own)
