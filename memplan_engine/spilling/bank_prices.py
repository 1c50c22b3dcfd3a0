"""Prices of bytes: the Lagrangian relaxation of the assignment to banks, its bound and what it suggests.

Each byte of a bank costs rent in each section. With any rents of 0 or more, what the buffers would pay if
each took its cheapest bank, rent included, less the rent of all capacities, is a lower bound: within the
capacities the rent that is paid never exceeds it. Rents rise where the buffers would pass a capacity
(subgradient steps after Polyak, with the best assignment known as the target).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from memplan_engine.banked.banked_plan import BankBound, BankBoundKind
from memplan_engine.kernels.types import Ints
from memplan_engine.spilling.assignment_task import FORBIDDEN, UNLIMITED, Task
from memplan_engine.strategies.base import SolveLimits

Floats = NDArray[np.float64]
Array = TypeVar("Array", Floats, Ints)

ROUNDS = 400
"""Steps at most; of 10,000 buffers each takes 2 ms."""
PATIENCE = 10
"""Steps without a better bound after which they become shorter, by SHORTER."""
SHORTER = 0.6
FIRST_STEP, LAST_STEP = 1.0, 1e-3
"""Lengths of steps, as shares of what would close the gap to the target if the bound were linear."""
MEMORY = 0.5
"""How much of the last direction goes into the next, which keeps steps from going to and fro."""
LEAST_GAIN = 1e-6
MOST_SCALE = 2**20
"""Prices are whole multiples of 1/scale: the scale is this, or less where costs are large."""
MOST_SCALED = 2**61


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of bytes by bank and section, whole numbers of 1/`scale` (int64, (k, s)), and the `bound` that
    they prove. `reduced` is what each buffer pays in each bank, rent included, in the same unit (int64,
    (n, k), FORBIDDEN where it may not live), and `base` the bound in that unit, not rounded."""

    rent: Ints
    scale: int
    reduced: Ints
    base: int
    bound: BankBound


def find_prices(
    task: Task, target: int, limits: SolveLimits, rounds: int = ROUNDS, begin: Floats | None = None
) -> Prices:
    """Good prices after at most `rounds` steps towards `target`, the cost of the best assignment known, from
    the prices `begin` on ((k, s); 0 everywhere unless given)."""
    limited = task.capacity < UNLIMITED
    room = np.where(limited[:, None], task.room, 0).astype(np.float64)
    cost = np.where(task.allowed, task.cost, np.inf)

    def cheapest(rent: Floats) -> tuple[float, Floats]:
        paid = cost + _rents(task, rent)
        chosen = np.argmin(paid, axis=1)
        value = float(paid[np.arange(len(chosen)), chosen].sum() - (rent * room).sum())
        return value, np.where(limited[:, None], task.load(chosen) - room, 0.0)

    return settle(
        task, rise(cheapest, np.zeros(task.shape) if begin is None else begin, target, limits, rounds)
    )


def rise(
    cheapest: Callable[[Floats], tuple[float, Floats]],
    rent: Floats,
    target: int,
    limits: SolveLimits,
    rounds: int,
) -> Floats:
    """The best of the rents that `rounds` steps from `rent` on come to. `cheapest` gives the bound that rents
    prove, and by how much what is cheapest with them passes each capacity (0 where there is none)."""
    slope = np.zeros(rent.shape)
    best, best_rent, step, waited = -float(MOST_SCALED), rent, FIRST_STEP, 0
    for _ in range(rounds):
        value, over = cheapest(rent)
        if value > best + LEAST_GAIN * abs(best):
            best, best_rent, waited = value, rent, 0
        else:
            waited += 1
            if waited >= PATIENCE:
                step, waited = step * SHORTER, 0
        slope = over + MEMORY * slope
        aim = np.where((rent <= 0) & (slope < 0), 0.0, slope)
        length = float((aim * aim).sum())
        # A bound is a whole number: what is less than one away from the target needs no more steps.
        if length == 0 or step < LAST_STEP or best > target - 1 or limits.stopped:
            break
        rent = np.maximum(0.0, rent + step * max(target - value, 1.0) / length * aim)
    return best_rent


def settle(task: Task, rent: Floats) -> Prices:
    """The prices `rent` as whole numbers, with the bound that they prove exactly."""
    scale = MOST_SCALE
    largest = task.dearest + 1
    most_rent = float((rent * np.where(task.room < UNLIMITED, task.room, 0)).sum())
    most_rent += float(_rents(task, rent).max(initial=0.0)) * len(task.cost)
    while scale > 1 and scale * (largest + most_rent) > MOST_SCALED:
        scale //= 2
    if scale * (largest + most_rent) > MOST_SCALED:
        rent = np.zeros(task.shape)
    whole = np.rint(rent * scale).astype(np.int64)
    whole[task.capacity >= UNLIMITED] = 0
    rents = _rents(task, whole)
    reduced = np.where(task.allowed, scale * np.where(task.allowed, task.cost, 0) + rents, FORBIDDEN)
    returned = int((whole * np.where(task.room < UNLIMITED, task.room, 0)).sum())
    base = int(reduced.min(axis=1).sum()) - returned
    plain = int(task.cheapest.sum())
    if -(-base // scale) <= plain and whole.any():
        return settle(task, np.zeros(task.shape))
    bound = BankBound(-(-base // scale), BankBoundKind.PRICES, _points(task, whole), scale)
    return Prices(whole, scale, reduced, base, bound)


def _rents(task: Task, rent: Array) -> Array:
    """What each buffer would pay for its bytes in each bank, (n, k)."""
    sums = np.concatenate([np.zeros((len(rent), 1), dtype=rent.dtype), np.cumsum(rent, axis=1)], axis=1)
    own = (sums[:, task.end] - sums[:, task.start]) * task.width.astype(rent.dtype)
    paid: Array = np.zeros((len(task.cost), len(rent)), dtype=rent.dtype)
    if len(task.owner) == len(task.cost):
        paid[:] = own.T
    else:
        np.add.at(paid, task.owner, own.T)
    return paid


def _points(task: Task, rent: Ints) -> tuple[tuple[int, int, int], ...]:
    """(bank, step, price) wherever there is a price."""
    places = zip(*np.nonzero(rent), strict=True)
    return tuple((int(bank), int(task.bounds[section]), int(rent[bank, section])) for bank, section in places)
