"""The least cost of all ways by live bytes, by a sweep over time: exact where few buffers are live at once.

What comes later depends only on where those lie that are live now. Between two steps each of them may move,
each at its own cost, so that one after another is gone through: of k banks and m live buffers that takes
m × k^(m + 1) additions a step and not k^2m.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from memplan_engine.kernels.types import Ints
from memplan_engine.spilling.assignment_task import UNLIMITED
from memplan_engine.spilling.moves.move_task import MoveTask
from memplan_engine.strategies.base import SolveLimits

NEVER = 2**61
"""The cost of what is not allowed: sums of two stay below 2^63."""
MOST_STATES = 2**16
"""At one step: with two banks sixteen buffers that are live together."""
MOST_KEPT = 2**23
"""Of all steps together: 64 MiB, and a few seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Which buffers are live, with an axis of `cost` each, by the banks that they may live in; `cost` is the
    least up to and with this step, NEVER or more where it cannot be."""

    live: list[int]
    cost: Ints


def sweep_moves(task: MoveTask, limits: SolveLimits) -> tuple[Ints, int] | None:
    """The cheapest ways that keep to the room at each step, and what they cost: (ways, NEVER) with no ways
    where there are none; None where too many are to be looked at."""
    banks = [np.flatnonzero(own >= 0) for own in task.weight]
    copied = [_copied(task, buffer, own) for buffer, own in enumerate(banks)]
    ends: list[list[int]] = [[] for _ in range(task.shape[1] + 1)]
    starts: list[list[int]] = [[] for _ in range(task.shape[1] + 1)]
    for buffer, (start, end) in enumerate(zip(task.start.tolist(), task.end.tolist(), strict=True)):
        starts[start].append(buffer)
        ends[end].append(buffer)
    live: list[int] = []
    cost, kept, steps = np.zeros((), dtype=np.int64), 0, list[_Step]()
    for step in range(task.shape[1]):
        for buffer in ends[step]:
            cost = cost.min(axis=live.index(buffer))
            live.remove(buffer)
        for axis, buffer in enumerate(live):
            cost = _moved(cost, axis, copied[buffer])
        live = live + starts[step]
        states = prod(len(banks[buffer]) for buffer in live)
        kept += states
        if states > MOST_STATES or kept > MOST_KEPT or len(live) > 32 or limits.stopped or limits.left <= 0:
            return None
        cost = cost.reshape(cost.shape + (1,) * len(starts[step]))
        cost = _paid(task, np.broadcast_to(cost, [len(banks[buffer]) for buffer in live]), live, banks, step)
        steps.append(_Step(list(live), cost))
    least = int(cost.min(initial=2 * NEVER))
    if least >= NEVER:
        return np.zeros(0, dtype=np.int64), NEVER
    return _way_back(task, steps, banks, copied), least // task.scale


def _copied(task: MoveTask, buffer: int, banks: Ints) -> Ints:
    """What `buffer` pays for going from each of `banks` to each, (from, to)."""
    own = task.weight[buffer, banks]
    if not task.moves[buffer]:
        return np.where(np.eye(len(banks), dtype=np.bool_), 0, NEVER)
    copied = task.scale * task.size[buffer] * (own[:, None] + own[None, :]) + task.fee
    return np.where(np.eye(len(banks), dtype=np.bool_), 0, copied)


def _moved(cost: Ints, axis: int, copied: Ints) -> Ints:
    """`cost` after the buffer of the axis may have moved."""
    parts = np.moveaxis(cost, axis, 0)
    ways = [
        (parts + copied[:, place].reshape(-1, *(1,) * (parts.ndim - 1))).min(axis=0)
        for place in range(len(copied))
    ]
    least: Ints = np.minimum(np.moveaxis(np.stack(ways), 0, axis), NEVER)
    return least


def _paid(task: MoveTask, cost: Ints, live: list[int], banks: list[Ints], step: int) -> Ints:
    """`cost` with the accesses of the step, NEVER where a bank has too little room."""
    cost = cost.copy()
    loads = {
        bank: np.zeros((), dtype=np.int64) for bank in np.flatnonzero(task.capacity < UNLIMITED).tolist()
    }
    for axis, buffer in enumerate(live):
        shape = [1] * axis + [-1] + [1] * (len(live) - axis - 1)
        accessed = task.access[task.first[buffer] + step - task.start[buffer]]
        if accessed:
            cost += (task.scale * accessed * task.weight[buffer, banks[buffer]]).reshape(shape)
        for bank in loads:
            loads[bank] = loads[bank] + (task.size[buffer] * (banks[buffer] == bank)).reshape(shape)
    for bank, load in loads.items():
        cost = np.where(load <= task.room[bank, step], cost, NEVER)
    return np.minimum(cost, NEVER)


def _way_back(task: MoveTask, steps: list[_Step], banks: list[Ints], copied: list[Ints]) -> Ints:
    path = np.zeros(len(task.access), dtype=np.int64)
    lies: dict[int, int] = {}
    for number in range(len(steps) - 1, -1, -1):
        live, cost = steps[number].live, steps[number].cost
        for axis, buffer in enumerate(live):
            if buffer in lies:
                to = copied[buffer][:, lies[buffer]]
                cost = cost + to.reshape([1] * axis + [-1] + [1] * (len(live) - axis - 1))
        chosen = np.unravel_index(int(np.argmin(cost)), cost.shape)
        lies = {buffer: int(place) for buffer, place in zip(live, chosen, strict=True)}
        for buffer, place in lies.items():
            path[task.first[buffer] + number - task.start[buffer]] = banks[buffer][place]
    return path
