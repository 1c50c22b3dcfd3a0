"""The cheapest assignment by live bytes, by a sweep over time: exact where few buffers are live at once.

What comes later depends only on where the buffers live that are live now: of all ways to come to the same
assignment of these, the cheapest is kept (dynamic programming over a path decomposition). The prices of bytes
put aside what cannot beat the best assignment known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.spilling.assignment_task import FORBIDDEN, UNLIMITED, Task
from memplan_engine.spilling.bank_prices import Prices
from memplan_engine.strategies.base import SolveLimits

MOST_STATES = 40_000
"""Kept at one step: some 30 ms."""
MOST_WORK = 6_000_000
"""Of all steps together: a few seconds, and the memory that the way back takes."""
MOST_CODE = 2**62


@dataclass(slots=True)
class _States:
    """States (rows) by what tells them apart (columns): the bank of each live buffer, then for each group
    that is begun whether all of it has been in its bank so far. `paid` is the cost so far, `spent` the same
    above the cheapest reduced costs. `steps` leads back: the state before, the buffers added, their banks."""

    columns: Ints
    paid: Ints
    spent: Ints
    live: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    steps: list[tuple[Ints, list[int], Ints]] = field(default_factory=list)
    parent: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def keep(self, rows: Ints | Flags) -> None:
        """Only these rows."""
        self.columns, self.paid, self.spent = self.columns[rows], self.paid[rows], self.spent[rows]
        self.parent = self.parent[rows]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What happens when: by section the buffers that begin, those that have ended, and the pieces; and the
    groups (bank, buffers) that are barred, with those of each buffer and the last buffer of each to begin."""

    begins: list[list[int]]
    ended: list[list[int]]
    pieces: list[list[int]]
    barred: list[tuple[int, tuple[int, ...]]]
    of_buffer: dict[int, list[int]]
    last: list[int]


def sweep(
    task: Task,
    prices: Prices,
    barred: list[tuple[int, tuple[int, ...]]],
    target: int,
    limits: SolveLimits,
) -> tuple[Ints | None, int] | None:
    """The cheapest assignment by live bytes that costs less than `target` and has no group of `barred` (bank,
    buffers) together in its bank, and its cost; (None, target) where there is none; None where there are too
    many states."""
    limit = prices.scale * (target - 1) - prices.base
    if limit < 0:
        return None, target
    plan = _plan(task, barred)
    least = np.where(task.allowed, prices.reduced, FORBIDDEN).min(axis=1)
    nothing = np.zeros(1, dtype=np.int64)
    states = _States(np.zeros((1, 0), dtype=np.int64), nothing, nothing)
    width = np.zeros(len(task.cost), dtype=np.int64)
    work = 0
    for section in range(task.shape[1]):
        states.parent = np.arange(len(states.paid))
        _forget(states, plan.ended[section], len(task.capacity))
        for piece in plan.pieces[section]:
            width[task.owner[piece]] = task.width[piece] if task.start[piece] == section else 0
        added = _begin(task, prices, plan, states, least, plan.begins[section], limit)
        if added is None or limits.stopped or limits.left <= 0:
            return None
        _fit(task, states, width)
        work += len(states.paid)
        if len(states.paid) > MOST_STATES or work > MOST_WORK:
            return None
        if not len(states.paid):
            return None, target
        banks = states.columns[:, [states.live.index(buffer) for buffer in added]]
        states.steps.append((states.parent, added, banks))
    return _way_back(task, states, target)


def _plan(task: Task, barred: list[tuple[int, tuple[int, ...]]]) -> _Plan:
    n, sections = len(task.cost), task.shape[1]
    first, last = np.full(n, sections, dtype=np.int64), np.zeros(n, dtype=np.int64)
    np.minimum.at(first, task.owner, task.start)
    np.maximum.at(last, task.owner, task.end)
    begins: list[list[int]] = [[] for _ in range(sections)]
    ended: list[list[int]] = [[] for _ in range(sections + 1)]
    pieces: list[list[int]] = [[] for _ in range(sections + 1)]
    for buffer in np.flatnonzero(first < sections).tolist():
        begins[first[buffer]].append(buffer)
        ended[last[buffer]].append(buffer)
    for piece, (start, end) in enumerate(zip(task.start.tolist(), task.end.tolist(), strict=True)):
        # What ends at a section comes before what begins there.
        pieces[end].insert(0, piece)
        pieces[start].append(piece)
    of_buffer: dict[int, list[int]] = {}
    for group, (_, rows) in enumerate(barred):
        for row in rows:
            of_buffer.setdefault(row, []).append(group)
    order = [buffer for own in begins for buffer in own]
    place = {buffer: number for number, buffer in enumerate(order)}
    final = [max(rows, key=lambda row: place.get(row, -1)) for _, rows in barred]
    return _Plan(begins, ended, pieces, barred, of_buffer, final)


def _forget(states: _States, ended: list[int], banks: int) -> None:
    """Leave out the buffers that have ended; of states that are then the same the cheapest is kept."""
    if not ended:
        return
    kept = [place for place, buffer in enumerate(states.live) if buffer not in ended]
    states.columns = states.columns[:, kept + list(range(len(states.live), states.columns.shape[1]))]
    states.live = [states.live[place] for place in kept]
    codes = np.zeros(len(states.paid), dtype=np.int64)
    for column in states.columns.T:
        codes = codes * banks + column
    order = np.lexsort((states.paid, codes))
    new = np.concatenate([[True], np.diff(codes[order]) != 0])
    states.keep(order[new])


def _begin(
    task: Task, prices: Prices, plan: _Plan, states: _States, least: Ints, begins: list[int], limit: int
) -> list[int] | None:
    """Give each of `begins` each of its banks; None where the states can no longer be told apart."""
    banks = len(task.capacity)
    for buffer in begins:
        if max(2, banks) ** (states.columns.shape[1] + 2 + len(plan.of_buffer.get(buffer, ()))) > MOST_CODE:
            return None
        if len(states.paid) > MOST_STATES:
            return None
        allowed = np.flatnonzero(task.allowed[buffer])
        rows = np.tile(np.arange(len(states.paid)), len(allowed))
        chosen = np.repeat(allowed, len(states.paid))
        states.keep(rows)
        states.paid = states.paid + task.cost[buffer, chosen]
        states.spent = states.spent + prices.reduced[buffer, chosen] - least[buffer]
        states.columns = np.insert(states.columns, len(states.live), chosen, axis=1)
        states.live.append(buffer)
        fine = states.spent <= limit
        for group in plan.of_buffer.get(buffer, ()):
            fine &= _join(plan, states, group, buffer, chosen)
        states.keep(fine)
    return begins


def _join(plan: _Plan, states: _States, group: int, buffer: int, chosen: Ints) -> Flags:
    """Note who of `group` is in its bank; which states may go on."""
    inside = chosen == plan.barred[group][0]
    if group not in states.groups:
        states.groups.append(group)
        states.columns = np.concatenate([states.columns, inside[:, None].astype(np.int64)], axis=1)
    column = len(states.live) + states.groups.index(group)
    states.columns[:, column] &= inside
    if plan.last[group] != buffer:
        return np.ones(len(chosen), dtype=np.bool_)
    fine: Flags = states.columns[:, column] == 0
    states.columns = np.delete(states.columns, column, axis=1)
    states.groups.remove(group)
    return fine


def _fit(task: Task, states: _States, width: Ints) -> None:
    """Leave out the states in which live bytes pass a capacity."""
    held = width[states.live]
    banks = states.columns[:, : len(states.live)]
    fine = np.ones(len(states.paid), dtype=np.bool_)
    for bank in np.flatnonzero(task.capacity < UNLIMITED).tolist():
        fine &= (banks == bank) @ held <= task.capacity[bank]
    states.keep(fine)


def _way_back(task: Task, states: _States, target: int) -> tuple[Ints | None, int]:
    bank_of = np.argmin(task.cost, axis=1)
    state = int(np.argmin(states.paid))
    for parent, added, banks in reversed(states.steps):
        bank_of[added] = banks[state]
        state = int(parent[state])
    cost = task.total(bank_of)
    return (bank_of, cost) if cost < target else (None, target)
