"""Assignments to banks within their capacities, fast enough for tens of thousands of buffers.

By live bytes first: buffers go one after another into the cheapest bank that has room, those first that lose
most if they do not; then one takes the place of others that lose less. The prices of bytes give a second
order and a second choice of banks. What comes of it is packed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.kernels.banks.insert import NOWHERE, exchange, insert_in_order
from memplan_engine.kernels.types import Ints
from memplan_engine.spilling.assignment_task import FORBIDDEN, UNLIMITED, Task, rank
from memplan_engine.spilling.bank_packing import Packed, improve, pack
from memplan_engine.spilling.bank_prices import Prices, find_prices
from memplan_engine.strategies.base import SolveLimits, Strategy

MOST_PASSES = 4
"""Over all buffers, of exchanges."""
MOST_ATTEMPTS = 8
"""Of assignments to smaller capacities, where packings miss theirs."""
QUICK_ROUNDS, LATER_ROUNDS = 150, 40
"""Of prices, for the first and for each later attempt."""


def assign(task: Task, limits: SolveLimits, known: Prices | None = None) -> tuple[Ints, Prices]:
    """The cheapest of several assignments by live bytes, with buffers NOWHERE where there was no room, and
    the prices that were found on the way. With prices that are `known`, those of more room, it begins there
    and tries no other."""
    tried = [] if known else [_inserted(task, order, limits) for order in _orders(task)]
    target = min((_cost(task, bank_of) for bank_of in tried), default=0)
    if known is None:
        prices = find_prices(task, target, limits, QUICK_ROUNDS)
    else:
        target = known.bound.value + known.bound.value // 20
        prices = find_prices(task, target, limits, LATER_ROUNDS, known.rent / known.scale)
    if prices.rent.any() or not tried:
        tried.append(_inserted(task, np.argsort(-_wish(task, prices), kind="stable"), limits))
    return min(tried, key=lambda bank_of: _cost(task, bank_of)), prices


def place(task: Task, strategy: str | Strategy, limits: SolveLimits) -> tuple[Packed | None, Prices]:
    """A cheap packed assignment, None where not all found room; and the prices of `task`.

    Where packings miss their capacities, an assignment to somewhat smaller ones loses less than what has to
    leave: how much smaller is tried a few times, at each step for itself, with what reached over as the
    first guess.
    """
    prices: Prices | None = None
    latest: Prices | None = None
    best: Packed | None = None
    limited = (task.capacity < UNLIMITED)[:, None]
    share, fits, misses = np.ones(task.shape), np.zeros(task.shape), np.ones(task.shape)
    for number in range(MOST_ATTEMPTS):
        room = np.where(limited, (task.room * share).astype(np.int64), task.room)
        bank_of, latest = assign(replace(task, room=room), limits, latest)
        prices = prices or latest
        packed = pack(task, bank_of, strategy, limits)
        if packed.whole and (best is None or task.total(packed.bank_of) < task.total(best.bank_of)):
            best = packed
        missed = limited & (packed.reach > task.room)
        if (number == 0 and not missed.any()) or limits.stopped or limits.left < limits.elapsed:
            break
        fits, misses = np.where(missed, fits, share), np.where(missed, share, misses)
        guess = share * task.room / np.maximum(packed.reach, 1)
        share = np.where(missed & (fits == 0), guess, (np.where(fits == 0, misses, fits) + misses) / 2)
    assert prices is not None
    if best is not None and task.total(best.bank_of) > prices.bound.value:
        best = improve(task, best, limits)
    return best, prices


def _inserted(task: Task, order: Ints, limits: SolveLimits) -> Ints:
    """The buffers in `order`, each into the cheapest bank that has room, and then exchanges; whoever has one
    bank only comes first."""
    ranked, cost = rank(task.cost, task.allowed), np.where(task.allowed, task.cost, 0)
    load = np.zeros(task.shape, dtype=np.int64)
    bank_of = np.full(len(task.cost), NOWHERE, dtype=np.int64)
    single = task.allowed.sum(axis=1) == 1
    order = np.concatenate([order[single[order]], order[~single[order]]])
    insert_in_order(order, ranked, *task.pieces, task.room, load, bank_of)
    for _ in range(MOST_PASSES):
        extra = np.where(
            bank_of == NOWHERE, task.homeless_cost, cost[np.arange(len(bank_of)), bank_of] - task.cheapest
        )
        waiting = np.flatnonzero(extra > 0)
        waiting = waiting[np.argsort(-extra[waiting], kind="stable")]
        saved = exchange(
            waiting, ranked, cost, *task.pieces, task.owner, *task.blocks, task.room, load, bank_of,
            task.homeless_cost, limits.stop,
        )  # fmt: skip
        if not saved:
            break
    return bank_of


def _orders(task: Task) -> list[Ints]:
    """Who comes first: by what it loses elsewhere for each byte and step, for each byte, and in all."""
    regret = _regret(task.cost, task).astype(np.float64)
    size = np.maximum(task.problem.size, 1).astype(np.float64)
    life = (task.problem.end - task.problem.start).astype(np.float64)
    return [np.argsort(-key, kind="stable") for key in (regret / (size * life), regret / size, regret)]


def _wish(task: Task, prices: Prices) -> Ints:
    """By how much each buffer would rather have its cheapest bank than the next, rents included (n)."""
    first, second = rank(task.cost, task.allowed)[:, :2].T if task.cost.shape[1] > 1 else (None, None)
    if first is None or second is None:
        return np.zeros(len(task.cost), dtype=np.int64)
    rows = np.arange(len(task.cost))
    wish: Ints = prices.reduced[rows, second] - prices.reduced[rows, first]
    return np.where(second == NOWHERE, FORBIDDEN, wish)


def _regret(values: Ints, task: Task) -> Ints:
    """What the second best bank costs more than the best (n); very much where there is no second."""
    if values.shape[1] == 1:
        return np.full(len(values), FORBIDDEN, dtype=np.int64)
    two = np.sort(np.where(task.allowed, values, FORBIDDEN), axis=1)[:, :2]
    regret: Ints = two[:, 1] - two[:, 0]
    return regret


def _cost(task: Task, bank_of: Ints) -> int:
    """What an assignment costs, whoever is NOWHERE more than all others together."""
    housed = np.flatnonzero(bank_of != NOWHERE)
    homeless = len(bank_of) - len(housed)
    return int(task.cost[housed, bank_of[housed]].sum()) + homeless * task.homeless_cost * (len(bank_of) + 1)
