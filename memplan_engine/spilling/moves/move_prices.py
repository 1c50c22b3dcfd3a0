"""Prices of bytes where buffers may move: the same Lagrangian relaxation, over ways instead of banks.

With any prices of 0 or more each buffer takes its cheapest way, prices included, by dynamic programming over
its steps; the sum, less the price of all capacities, is a bound: within the capacities at the steps of ops
the price paid never exceeds it. What the copies hold besides at their own steps is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.banked.banked_plan import BankBound, BankBoundKind
from memplan_engine.kernels.types import Ints
from memplan_engine.spilling.assignment_task import UNLIMITED
from memplan_engine.spilling.bank_prices import MOST_SCALE, MOST_SCALED, Floats, rise
from memplan_engine.spilling.moves.move_task import MoveTask
from memplan_engine.strategies.base import SolveLimits

ROUNDS = 600
"""Steps at most; of a training step of 500 buffers each takes a millisecond."""


@dataclass(frozen=True, slots=True, eq=False)
class MovePrices:
    """Prices of bytes by bank and step, whole numbers of 1/`scale` (int64, (k, s)); the `bound` that they
    prove; and the way that is cheapest with them for each buffer, as in `kernels.banks.routes`."""

    price: Ints
    scale: int
    bound: BankBound
    path: Ints


def find_move_prices(task: MoveTask, target: int, limits: SolveLimits, rounds: int = ROUNDS) -> MovePrices:
    """Good prices after at most `rounds` steps towards `target`, the cost of the best plan known."""

    def cheapest(rent: Floats) -> tuple[float, Floats]:
        whole, scale = _whole(task, rent)
        value, over, _ = _relaxed(task, whole, scale)
        return value / scale, over.astype(np.float64)

    begin = np.zeros(task.shape)
    if not (task.capacity < UNLIMITED).any():
        rounds = 0
    whole, scale = _whole(task, rise(cheapest, begin, target, limits, rounds))
    value, _, path = _relaxed(task, whole, scale)
    plain, _, free = _relaxed(task, np.zeros_like(whole), 1)
    if -(-value // scale) <= plain:
        whole, scale, value, path = np.zeros_like(whole), 1, plain, free
    points = tuple(
        (int(bank), int(step), int(whole[bank, step])) for bank, step in zip(*np.nonzero(whole), strict=True)
    )
    return MovePrices(whole, scale, BankBound(-(-value // scale), BankBoundKind.MOVES, points, scale), path)


def _relaxed(task: MoveTask, price: Ints, scale: int) -> tuple[int, Ints, Ints]:
    """The value of the prices in units of 1/scale, by how much the ways pass each capacity, and the ways."""
    load, path = np.zeros(task.shape, dtype=np.int64), np.zeros(len(task.access), dtype=np.int64)
    roomy = np.full(task.shape, UNLIMITED, dtype=np.int64)
    paid, _ = task.route(task.everybody, path, load, price=price, room=roomy, scale=scale)
    limited = (task.capacity < UNLIMITED)[:, None]
    rooms = np.where(limited, task.capacity[:, None], 0)
    returned = sum(int(row.sum()) * int(room[0]) for row, room in zip(price, rooms, strict=True))
    return paid - returned, np.where(limited, load - rooms, 0), path


def _whole(task: MoveTask, rent: Floats) -> tuple[Ints, int]:
    """`rent` as whole numbers of 1/scale, with a scale for which nothing passes 2^61."""
    rent = np.where((task.capacity < UNLIMITED)[:, None], rent, 0.0)
    dearest = np.concatenate([[0.0], np.cumsum(rent.max(axis=0, initial=0.0))])
    most = float(((dearest[task.end] - dearest[task.start]) * task.size).sum()) + 2.0 * task.dearest + 1
    most += float((rent.sum(axis=1) * np.where(task.capacity < UNLIMITED, task.capacity, 0)).sum())
    scale = MOST_SCALE
    while scale > 1 and scale * most > MOST_SCALED:
        scale //= 2
    whole = (
        np.rint(rent * scale).astype(np.int64)
        if scale * most <= MOST_SCALED
        else np.zeros(task.shape, dtype=np.int64)
    )
    return whole, scale
