"""Ways packed: each bank within its capacity at every step, also those of the copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from memplan_engine.banked.banked_plan import BankedPlan, bank_problem, traffic_of
from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.types import Ints
from memplan_engine.plan import Plan, make_offsets
from memplan_engine.problem import Problem
from memplan_engine.spilling.assignment_task import UNLIMITED, Task, make_task
from memplan_engine.spilling.bank_packing import Packed, improve, pack, pack_one
from memplan_engine.spilling.moves.move_task import MoveTask
from memplan_engine.spilling.moves.moved_graph import Moved, moved_problem
from memplan_engine.strategies.base import SolveLimits, Strategy


@dataclass(frozen=True, slots=True, eq=False)
class PackedWays:
    """A plan of the ways `path`: `problem` has the copies, `bank_of` says where its buffers live, `plans` has
    a plan for each bank, and `op_steps` at which step of `problem` runs what ran at each step before."""

    path: Ints
    problem: Problem
    bank_of: Ints
    plans: tuple[Plan, ...]
    op_steps: Ints

    @property
    def traffic(self) -> int:
        """What accesses and copies cost."""
        return traffic_of(self.problem, self.bank_of)


def staying(task: MoveTask, still: BankedPlan) -> PackedWays:
    """A plan in which nobody moves."""
    path, steps = task.staying(still.bank_of), np.arange(task.shape[1])
    return PackedWays(path, still.problem, still.bank_of, still.plans, steps)


def pack_ways(
    task: MoveTask, path: Ints, strategy: str | Strategy, limits: SolveLimits
) -> tuple[PackedWays | None, Ints]:
    """The ways `path` after packing, where what finds no room in a bank stays in a slower one meanwhile; None
    where there is none either. And how far up each bank was reached at each step of `task`, as
    `bank_packing.Packed.reach` has it."""
    moved = moved_problem(task, path)
    stays = make_task(moved.problem)
    packed = pack(stays, moved.bank_of, strategy, limits)
    reach = _by_op_steps(stays, moved.op_steps, packed.reach)
    if not packed.whole:
        return None, reach
    packed = improve(stays, packed, limits)
    if np.array_equal(packed.bank_of, moved.bank_of):
        return PackedWays(path, moved.problem, moved.bank_of, packed.plans, moved.op_steps), reach
    own = path.copy()
    for stay, bank in zip(moved.stays, _unjoined(moved, packed.bank_of, task.capacity), strict=True):
        begin = int(task.first[stay.buffer] - task.start[stay.buffer])
        own[begin + stay.begin : begin + stay.end] = bank
    after = moved_problem(task, own)
    plans = _carried_over(moved, packed, after, task.capacity, strategy, limits)
    if plans is None:
        return None, reach
    return PackedWays(own, after.problem, after.bank_of, plans, after.op_steps), reach


def _unjoined(moved: Moved, bank_of: Ints, capacity: Ints) -> list[int]:
    """The banks of the stays after packing, `bank_of`, but that who came into a bank with a capacity next to
    another stay of the same buffer there, at another offset, goes back to where it was."""
    banks: list[int] = bank_of.tolist()
    for row, (one, other) in enumerate(pairwise(moved.stays)):
        if one.buffer == other.buffer and banks[row] == banks[row + 1] and capacity[banks[row]] < UNLIMITED:
            back = row if banks[row] != one.bank else row + 1
            banks[back] = moved.stays[back].bank
    return banks


def _by_op_steps(stays: Task, op_steps: Ints, reach: Ints) -> Ints:
    """The largest reach from behind the op before each step up to the op behind it."""
    last = int(stays.bounds[-1])
    sections = np.searchsorted(stays.bounds, np.arange(last), side="right") - 1
    at = reach[:, sections]
    edges = np.concatenate([[-1], op_steps, [last]])
    columns = [at[:, edges[i] + 1 : edges[i + 2]].max(axis=1, initial=0) for i in range(len(op_steps))]
    return np.stack(columns, axis=1)


def _carried_over(
    moved: Moved, packed: Packed, after: Moved, capacity: Ints, strategy: str | Strategy, limits: SolveLimits
) -> tuple[Plan, ...] | None:
    """The plans of `packed` for `after`, in which stays that have come into one bank are one: offsets stay,
    and a bank in which stays were joined is packed anew; None where that misses its capacity."""
    offsets: dict[tuple[int, int, int, int], int] = {}
    for bank, plan in enumerate(packed.plans):
        for row, offset in zip(
            np.flatnonzero(packed.bank_of == bank).tolist(), plan.offsets.tolist(), strict=True
        ):
            stay = moved.stays[row]
            offsets[bank, stay.buffer, stay.begin, stay.end] = offset
    plans = []
    for bank, old in enumerate(packed.plans):
        rows = np.flatnonzero(after.bank_of == bank)
        keys = [(bank, s.buffer, s.begin, s.end) for s in (after.stays[row] for row in rows.tolist())]
        part, limit = bank_problem(after.problem, rows, bank), int(capacity[bank])
        if limit < UNLIMITED and all(key in offsets for key in keys):
            own = make_offsets([offsets[key] for key in keys])
            plans.append(replace(old, problem=part, offsets=own, objects=None, bound=lower_bound(part)))
            continue
        plan = pack_one(part, limit, strategy, limits)
        if plan.arena_bytes > limit:
            return None
        plans.append(plan)
    return tuple(plans)
