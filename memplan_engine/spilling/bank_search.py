"""An exact search over assignments to banks, for problems that are small or nearly settled by their prices.

The master is the assignment by live bytes: a sweep over time where few buffers are live at once, else branch
and bound with the prices as its bound. What it finds is
packed; buffers that a bank is proved not to pack together are barred from it as a group, and the master is
solved again (logic-based Benders decomposition, Hooker 2003).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memplan_engine.banked.banked_plan import bank_problem
from memplan_engine.bounds import BoundKind
from memplan_engine.feasibility.decision import find_core
from memplan_engine.kernels.banks.branch_banks import BEST, DEPTH, LIMIT, NODES, branch_banks
from memplan_engine.kernels.banks.insert import NOWHERE
from memplan_engine.kernels.types import Ints
from memplan_engine.plan import Plan
from memplan_engine.spilling.assignment_task import FORBIDDEN, UNLIMITED, Task, rank
from memplan_engine.spilling.bank_packing import pack_one
from memplan_engine.spilling.bank_prices import Prices
from memplan_engine.spilling.bank_sweep import sweep
from memplan_engine.strategies.base import SolveLimits, Strategy

NODES_AT_ONCE = 1_000
"""Between looks at the clock, and before the kernel asks anew whether it is worth compiling."""
MOST_NODES = 20_000_000


@dataclass(slots=True)
class Barred:
    """Groups of buffers that must not be in a bank all together, as (bank, buffers)."""

    groups: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def columns(self, n: int) -> tuple[Ints, Ints, Ints, Ints]:
        """What the kernel takes: by buffer the begin of its groups, the groups, their banks, their sizes."""
        by_buffer: list[list[int]] = [[] for _ in range(n)]
        for number, (_, rows) in enumerate(self.groups):
            for row in rows:
                by_buffer[row].append(number)
        first = np.cumsum([0, *map(len, by_buffer)])
        flat = np.array([number for own in by_buffer for number in own], dtype=np.int64)
        banks = np.array([bank for bank, _ in self.groups], dtype=np.int64)
        sizes = np.array([len(rows) for _, rows in self.groups], dtype=np.int64)
        return first, flat, banks, sizes


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """What the search came to: the best assignment that was packed, with its plans, None where none is better
    than what was known; `least`, below which no assignment costs, None where there is none at all; `through`
    says that nothing is left open."""

    bank_of: Ints | None
    plans: tuple[Plan, ...]
    least: int | None
    through: bool


def search(
    task: Task, prices: Prices, target: int, strategy: str | Strategy, limits: SolveLimits
) -> Searched:
    """Look for the cheapest assignment that costs less than `target` and can be packed."""
    barred = Barred()
    least, proved = prices.bound.value, True
    while True:
        assigned = _master(task, prices, barred, target, limits)
        if assigned is None:
            return Searched(None, (), least, False)
        bank_of, cost = assigned
        if bank_of is None:
            # Nobody costs less than the target: what the groups bar by proof is proved.
            return Searched(None, (), target if proved else least, proved)
        least = max(least, cost) if proved else least
        plans, misfits, certain = _pack_all(task, bank_of, strategy, limits)
        if not misfits:
            return Searched(bank_of, plans, least if not proved else cost, proved)
        if limits.stopped:
            return Searched(None, (), least, False)
        proved = proved and certain
        barred.groups += misfits


def _master(
    task: Task, prices: Prices, barred: Barred, target: int, limits: SolveLimits
) -> tuple[Ints | None, int] | None:
    """The cheapest assignment by live bytes below `target`, and its cost; (None, target) where there is none;
    None when the search was ended."""
    swept = sweep(task, prices, barred.groups, target, limits)
    if swept is not None:
        return swept
    n = len(task.cost)
    reduced = np.where(task.allowed, prices.reduced, FORBIDDEN)
    least = reduced.min(axis=1, keepdims=True)
    extra = np.where(task.allowed, reduced - least, 0)
    ranked = rank(extra, task.allowed)
    second = np.sort(np.where(task.allowed, extra, FORBIDDEN), axis=1)[:, min(1, extra.shape[1] - 1)]
    order = np.lexsort((-task.problem.size, -second))
    state = np.zeros(6, dtype=np.int64)
    state[BEST], state[LIMIT] = target, prices.scale * (target - 1) - prices.base
    load = np.zeros(task.shape, dtype=np.int64)
    bank_of, best_of = np.full(n, NOWHERE, dtype=np.int64), np.full(n, NOWHERE, dtype=np.int64)
    tried = np.zeros(n + 1, dtype=np.int64)
    columns = barred.columns(n)
    cost = np.where(task.allowed, task.cost, 0)
    if state[LIMIT] < 0:
        return None, target
    while state[DEPTH] >= 0:
        before = int(state[NODES])
        branch_banks(
            order, ranked, extra, cost, prices.scale, *task.pieces, task.room, load,
            *columns[:3], columns[3], tried, bank_of, best_of, state, NODES_AT_ONCE, limits.stop,
        )  # fmt: skip
        limits.counter[0] += int(state[NODES]) - before
        if limits.stopped or limits.left <= 0 or state[NODES] > MOST_NODES:
            return None
    return (None, target) if state[BEST] == target else (best_of, int(state[BEST]))


def _pack_all(
    task: Task, bank_of: Ints, strategy: str | Strategy, limits: SolveLimits
) -> tuple[tuple[Plan, ...], list[tuple[int, tuple[int, ...]]], bool]:
    """The plans of all banks, the groups that do not fit, and whether each is proved not to."""
    plans, groups, certain = [], [], True
    for bank, capacity in enumerate(task.capacity.tolist()):
        rows = np.flatnonzero(bank_of == bank)
        plan = pack_one(bank_problem(task.problem, rows, bank), capacity, strategy, limits)
        if plan.arena_bytes > capacity and plan.bound.nbytes <= capacity:
            # Another strategy may place what this one cannot.
            plan = pack_one(plan.problem, capacity, "auto", limits)
        plans.append(plan)
        if plan.arena_bytes <= capacity or capacity >= UNLIMITED:
            continue
        if plan.bound.nbytes <= capacity:
            groups.append((bank, tuple(rows.tolist())))
            certain = False
        else:
            groups.append((bank, _group(plan, rows, capacity)))
    return tuple(plans), groups, certain


def _group(plan: Plan, rows: Ints, capacity: int) -> tuple[int, ...]:
    """The buffers of the bank that are proved not to fit together, as few as the proof names."""
    if plan.bound.kind is BoundKind.CORE:
        return tuple(rows[list(plan.bound.core)].tolist())
    names = set(find_core(plan.problem, plan.bound, capacity).problem.names)
    return tuple(row for row, name in zip(rows.tolist(), plan.problem.names, strict=True) if name in names)
