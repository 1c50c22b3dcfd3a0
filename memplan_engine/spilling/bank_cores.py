"""Why there is no room: buffers that alone do not fit into the banks that they may live in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from memplan_engine.banked.bank_core import BankCore, CoreKind
from memplan_engine.banked.banked_plan import BankBound, BankBoundKind, bank_problem, banks_of
from memplan_engine.bounds import lower_bound
from memplan_engine.feasibility.decision import find_core
from memplan_engine.kernels.types import Flags, Ints
from memplan_engine.problem import Problem, select
from memplan_engine.spilling.assignment_task import UNLIMITED, Task

MOST_SUBSETS = 8
"""Of so many banks all subsets are looked at; of more, each alone and all together."""


def find_room_core(task: Task) -> BankCore | None:
    """A core that shows without a search, if there is one: of any other kind."""
    return _largest_core(task) or _room_core(task) or _packing_core(task)


def _largest_core(task: Task) -> BankCore | None:
    """A buffer that is larger than each bank that it may live in."""
    rows = np.flatnonzero(~task.allowed.any(axis=1))[:1]
    if not len(rows):
        return None
    banks = np.flatnonzero(banks_of(task.problem).allowed[rows[0]])
    step, most = int(task.problem.start[rows[0]]), int(task.capacity[banks].max())
    kind = CoreKind.LARGEST if task.problem.size[rows[0]] > most else CoreKind.PACKING
    return _core(task, kind, rows, tuple(banks.tolist()), most, step)


def _room_core(task: Task) -> BankCore | None:
    """Buffers whose live bytes pass the capacities of all banks that they may live in; the fewest of those
    of one step, largest first."""
    for banks, rows, live in _bound_to(task):
        capacity = sum(int(task.capacity[bank]) for bank in banks)
        section = int(np.argmax(live))
        if capacity < UNLIMITED and live[section] > capacity:
            own = _largest(task, rows, section, capacity)
            return _core(task, CoreKind.ROOM, own, banks, capacity, int(task.bounds[section]))
    return None


def least_in_slowest(task: Task) -> BankBound:
    """What the slowest bank must hold at some step, whatever the assignment: live bytes less the capacities
    of all other banks that could take them."""
    slowest = banks_of(task.problem).slowest
    best, step = 0, 0
    for banks, _, live in _bound_to(task):
        others = sum(int(task.capacity[bank]) for bank in banks if bank != slowest)
        if slowest in banks and int(live.max(initial=0)) - others > best:
            best, step = int(live.max()) - others, int(task.bounds[int(np.argmax(live))])
    return BankBound(best, BankBoundKind.ROOM, step=step)


def shrink(task: Task, rows: Ints, impossible: Callable[[Problem], bool]) -> Problem:
    """Of the buffers `rows`, which are `impossible` together, a set of which none can be left out; as far as
    `impossible` can tell, which says no when it does not know."""
    kept = list(rows.tolist())
    for row in sorted(kept, key=lambda row: int(task.problem.size[row])):
        fewer = [other for other in kept if other != row]
        if fewer and impossible(select(task.problem, np.array(fewer))):
            kept = fewer
    return select(task.problem, np.array(kept), f"{task.problem.name}-core")


def _core(
    task: Task, kind: CoreKind, rows: Ints, banks: tuple[int, ...], capacity: int, step: int
) -> BankCore:
    problem = select(task.problem, np.sort(rows), f"{task.problem.name}-core")
    held = int(problem.size[(problem.start <= step) & (step < problem.end)].sum())
    names = banks_of(problem).names
    return BankCore(problem, kind, tuple(names[bank] for bank in banks), held, capacity, step)


def _packing_core(task: Task) -> BankCore | None:
    """Buffers that may live in one bank only and need a larger arena there than it has."""
    for bank in np.flatnonzero(task.capacity < UNLIMITED).tolist():
        rows = np.flatnonzero(task.allowed[:, bank] & (task.allowed.sum(axis=1) == 1))
        own, capacity = bank_problem(task.problem, rows, bank), int(task.capacity[bank])
        bound = lower_bound(own)
        if bound.nbytes > capacity:
            core = find_core(own, bound, capacity)
            place = {name: row for row, name in zip(rows.tolist(), own.names, strict=True)}
            found = np.array(sorted(place[name] for name in core.problem.names))
            problem = select(task.problem, found, f"{task.problem.name}-core")
            names = (banks_of(problem).names[bank],)
            return BankCore(problem, CoreKind.PACKING, names, core.nbytes, capacity, core.start)
    return None


def _bound_to(task: Task) -> Iterator[tuple[tuple[int, ...], Flags, Ints]]:
    """Sets of banks, each with the buffers that may live in no other bank and their live bytes in each
    section; sets without such buffers are left out."""
    banks = range(len(task.capacity))
    sizes = range(1, len(banks) + 1) if len(banks) <= MOST_SUBSETS else (1, len(banks))
    for chosen in (own for size in sizes for own in combinations(banks, size)):
        outside = [bank for bank in banks if bank not in chosen]
        rows = np.asarray(~task.allowed[:, outside].any(axis=1))
        if rows.any():
            yield chosen, rows, task.load(np.where(rows, 0, -1))[0]


def _largest(task: Task, rows: Flags, section: int, capacity: int) -> Ints:
    """As few of `rows` as pass `capacity` in `section`, largest first."""
    live = (task.start <= section) & (section < task.end) & rows[task.owner]
    pieces = np.flatnonzero(live)
    pieces = pieces[np.argsort(-task.width[pieces], kind="stable")]
    enough = int(np.searchsorted(np.cumsum(task.width[pieces]), capacity, side="right")) + 1
    owners: Ints = task.owner[pieces[:enough]]
    return owners
