"""Each bank packed within its capacity, so that what finds no room is what loses least.

A strategy packs what the assignment gives a bank. Then ejection search goes on from there with everybody who
would gain by living in the bank: buffers go in and out below its capacity, and the pool of those that are out
is to lose as little as possible by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.banked.banked_plan import bank_problem
from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.banks.insert import NOWHERE
from memplan_engine.kernels.jit import interprets
from memplan_engine.kernels.search import repair
from memplan_engine.kernels.types import Ints
from memplan_engine.plan import Plan, make_offsets
from memplan_engine.planner import SHORT_SECONDS, make_plan
from memplan_engine.problem import FREE, Problem
from memplan_engine.spilling.assignment_task import UNLIMITED, Task
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import SolveLimits, Strategy, is_anytime, obstacle, with_capacity
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.search.moves import make_ejection_search

LEAST_SECONDS, MOST_SECONDS = 0.2, 1.0
"""For the packing of one bank, where the strategy searches; few buffers are packed before any limit matters,
and a longer one then spares loading the kernels of a search ahead."""
FINISHING_SECONDS = 1.0
QUICK = "greedy_by_size"
FEW = 24
"""So few buffers are left to the exact search: ejection would have to be compiled for them."""
EJECTIONS = repair.RepairParams(most_completed=0)
PATIENCE = 300
"""Moves from its best moment after which it goes back to it."""
MOST_IDLE = 4
"""Times as many moves as there are buffers, ten times over, without a better moment, after which it ends."""
BRIEF = 3
"""Moves for each buffer that fill the holes which a packing has left."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Banks packed: where each buffer lives (NOWHERE for one that found no room), and a plan a bank. `reach`
    says how far up each bank's buffers would have reached in each section, had all that it was assigned
    stayed there: the largest end of those above its capacity, 0 where there are none (bytes, (k, s))."""

    bank_of: Ints
    plans: tuple[Plan, ...]
    reach: Ints

    @property
    def whole(self) -> bool:
        """Whether every buffer found room."""
        return not (self.bank_of == NOWHERE).any()


def pack(task: Task, bank_of: Ints, strategy: str | Strategy, limits: SolveLimits) -> Packed:
    """Pack the banks from the fastest to the slowest; who finds no room goes on to the next."""
    bank_of, plans = bank_of.copy(), {}
    reach = np.zeros(task.shape, dtype=np.int64)
    for bank, later in _by_speed(task):
        capacity = int(task.capacity[bank])
        rows = np.flatnonzero(bank_of == bank)
        plan = pack_one(bank_problem(task.problem, rows, bank), capacity, strategy, limits)
        ends = plan.offsets + plan.problem.size
        over = ends > capacity
        for row in np.flatnonzero(over).tolist():
            for piece in range(int(task.first[rows[row]]), int(task.first[rows[row] + 1])):
                above = reach[bank, task.start[piece] : task.end[piece]]
                np.maximum(above, ends[row], out=above)
        bank_of[rows[over]] = NOWHERE
        offsets = np.full(len(bank_of), repair.UNPLACED, dtype=np.int64)
        offsets[rows[~over]] = plan.offsets[~over]
        if over.any():
            offsets = _ejected(task, bank_of, offsets, bank, later, limits, BRIEF)
        plans[bank] = _settle(task, bank_of, plan, offsets, bank, later)
    return Packed(bank_of, tuple(plans[bank] for bank in sorted(plans)), reach)


def improve(task: Task, packed: Packed, limits: SolveLimits) -> Packed:
    """`packed` after a longer ejection search in each bank, from the fastest to the slowest but one."""
    bank_of, plans = packed.bank_of.copy(), dict(enumerate(packed.plans))
    for bank, later in _by_speed(task):
        offsets = np.full(len(bank_of), repair.UNPLACED, dtype=np.int64)
        offsets[bank_of == bank] = plans[bank].offsets
        better = _ejected(task, bank_of, offsets, bank, later, limits, None)
        if np.array_equal(better, offsets):
            continue
        plans[bank] = _settle(task, bank_of, plans[bank], better, bank, later)
        for other in later:
            # Who came from there has left a hole, and who goes there is not placed yet.
            rows = np.flatnonzero(bank_of == other)
            part = bank_problem(task.problem, rows, other)
            plans[other] = pack_one(part, int(task.capacity[other]), plans[other].strategy, limits)
            if plans[other].arena_bytes > task.capacity[other]:
                return packed
    return replace(packed, bank_of=bank_of, plans=tuple(plans[bank] for bank in sorted(plans)))


def _by_speed(task: Task) -> list[tuple[int, list[int]]]:
    """The banks from the fastest to the slowest, each with those that come after it."""
    weights = task.problem.banks.weights if task.problem.banks else ()
    order = np.argsort(np.array(weights, dtype=np.int64), kind="stable").tolist()
    return [(bank, order[place + 1 :]) for place, bank in enumerate(order)]


def _settle(task: Task, bank_of: Ints, plan: Plan, offsets: Ints, bank: int, later: list[int]) -> Plan:
    """Write to `bank_of` who lies in `bank` at `offsets`, send the others on, and give the bank's plan."""
    inside = offsets != repair.UNPLACED
    bank_of[(bank_of == bank) & ~inside] = NOWHERE
    bank_of[inside] = bank
    _send_on(task, bank_of, later)
    part = bank_problem(task.problem, np.flatnonzero(inside), bank)
    if part.names == plan.problem.names and np.array_equal(plan.offsets, offsets[inside]):
        return plan
    placed = make_offsets(offsets[inside])
    return replace(plan, problem=part, offsets=placed, objects=None, bound=lower_bound(part))


def pack_one(problem: Problem, capacity: int, strategy: str | Strategy, limits: SolveLimits) -> Plan:
    """The plan of one bank, aimed at its capacity where the strategy can aim; without a capacity a quick one,
    for `finish` to better."""
    chosen = get_strategy(strategy) if isinstance(strategy, str) else strategy
    if capacity >= UNLIMITED or limits.stopped or obstacle(chosen, problem):
        chosen = get_strategy(QUICK)
    else:
        chosen = with_capacity(chosen, capacity) or chosen
    seconds = None
    if is_anytime(chosen):
        hurried = max(LEAST_SECONDS, min(MOST_SECONDS, limits.left / 12))
        seconds = SHORT_SECONDS if interprets(2 * len(problem)) else hurried
    if seconds is None:
        # Without a plan of each bank there is none at all: one that is not a search is not stopped.
        return make_plan(problem, chosen, limits=SolveLimits(None, limits.seed, limits.threads))
    return make_plan(problem, chosen, limits=limits.apart(seconds, limits.threads))


def finish(plan: Plan, capacity: int, strategy: str | Strategy, limits: SolveLimits) -> Plan:
    """The plan of a bank by the strategy that was asked for: the smallest arena and not only one within the
    capacity. A strategy that does not search is taken at its word."""
    chosen = get_strategy(strategy) if isinstance(strategy, str) else strategy
    if obstacle(chosen, plan.problem) or limits.stopped or (plan.optimal and plan.strategy == chosen.name):
        return plan
    seconds = max(LEAST_SECONDS, min(FINISHING_SECONDS, limits.left)) if is_anytime(chosen) else None
    better = make_plan(plan.problem, chosen, limits=limits.apart(seconds, limits.threads))
    most = plan.arena_bytes if is_anytime(chosen) else capacity
    return better if better.arena_bytes <= most else plan


def _cheapest_of(task: Task, banks: list[int]) -> Ints:
    """What each buffer costs in the cheapest of `banks`; `homeless_cost` where it may live in none."""
    costs = np.where(task.allowed[:, banks], task.cost[:, banks], task.homeless_cost)
    least: Ints = costs.min(axis=1, initial=task.homeless_cost)
    return least


def _candidates(task: Task, bank_of: Ints, elsewhere: Ints, bank: int) -> Ints:
    """Who is not in `bank` and would gain by living there."""
    own = task.cost[np.arange(len(bank_of)), bank_of]
    now = np.where(bank_of == NOWHERE, task.homeless_cost, own)
    gains = (np.minimum(now, elsewhere) > task.cost[:, bank]) & (bank_of != bank)
    return np.flatnonzero(gains & (task.problem.size <= task.capacity[bank]) & (task.problem.fixed == FREE))


def _ejected(
    task: Task, bank_of: Ints, offsets: Ints, bank: int, later: list[int], limits: SolveLimits,
    brief: int | None,
) -> Ints:  # fmt: skip
    """Better `offsets` in `bank` (UNPLACED for those that are not in it), below its capacity: after `brief`
    moves for each buffer, or after as many as find something."""
    elsewhere = _cheapest_of(task, later)
    candidates = _candidates(task, bank_of, elsewhere, bank)
    if task.capacity[bank] >= UNLIMITED or len(bank_of) <= FEW or not len(candidates):
        return offsets
    rows = np.union1d(np.flatnonzero(offsets != repair.UNPLACED), candidates)
    part, capacity = bank_problem(task.problem, rows, bank), int(task.capacity[bank])
    search = make_ejection_search(make_timeline(part), EJECTIONS)
    search.state.columns.weight[:] = np.maximum(elsewhere[rows] - task.cost[rows, bank], 0) + 1e-3
    repair.begin(search.state, offsets[rows], capacity)
    share = limits.apart(limits.left / 2 if limits.seconds is not None else None)
    idle, best, number = 0, np.inf, 0
    with share.running():
        while not share.stopped and search.out and idle < MOST_IDLE:
            number += 1
            moves = number * 10 * len(rows) if brief is None else brief * len(rows)
            allowed = repair.RepairLimits(moves, 2**62, PATIENCE)
            search.repair(capacity, 2**62, allowed, limits.seed + number, share)
            weight = float(search.state.weights[1])
            idle, best = 0 if weight < best else idle + 1, min(best, weight)
            if brief is not None:
                break
    better = np.full(len(bank_of), repair.UNPLACED, dtype=np.int64)
    better[rows] = search.offsets
    return better


def _send_on(task: Task, bank_of: Ints, later: list[int]) -> None:
    """Give everybody who is NOWHERE the cheapest of the banks `later` that has room by live bytes; those
    first that lose most by it."""
    waiting = np.flatnonzero(bank_of == NOWHERE)
    if not len(waiting) or not later:
        return
    loads = task.load(bank_of)
    dearest = task.cost[waiting].max(axis=1, where=task.allowed[waiting], initial=0)
    for buffer in waiting[np.argsort(task.cheapest[waiting] - dearest, kind="stable")].tolist():
        pieces = slice(int(task.first[buffer]), int(task.first[buffer + 1]))
        spans = list(zip(task.start[pieces], task.end[pieces], task.width[pieces], strict=True))
        for bank in sorted(later, key=lambda bank: int(task.cost[buffer, bank])):
            has_room = all(
                loads[bank, start:end].max(initial=0) + width <= task.capacity[bank]
                for start, end, width in spans
            )
            if task.allowed[buffer, bank] and has_room:
                bank_of[buffer] = bank
                for start, end, width in spans:
                    loads[bank, start:end] += width
                break
