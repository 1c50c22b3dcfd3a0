"""Cheap ways by live bytes for many buffers: one after another, then some anew beside all others.

A neighbourhood search (LNS, Shaw 1998): a few buffers that are live together lose their ways, and are given
new ones in another order, each the cheapest that has room then; prices of bytes, taken as rents, keep those
out that others need the room for.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.types import Ints
from memplan_engine.spilling.assignment_task import UNLIMITED
from memplan_engine.spilling.bank_prices import Floats
from memplan_engine.spilling.moves.move_prices import MovePrices
from memplan_engine.spilling.moves.move_task import MoveTask
from memplan_engine.strategies.base import SolveLimits

MOST_TAKEN = 24
"""Buffers that are taken out at once."""
SHARES = (0.0, 0.0, 0.5, 1.0)
"""Of the prices that ways are found with, drawn for each round."""
NOISE = 1.0
"""Of the logarithm of what says who comes first."""
PATIENCE, MOST_PATIENCE = 50, 5_000
"""Rounds for each buffer, and in all, without a better sum, after which it ends."""


def better_ways(
    task: MoveTask, begin: list[Ints], prices: MovePrices, limits: SolveLimits, target: int = 0
) -> tuple[Ints, int] | None:
    """The cheapest ways found within the room of `task`, and what they cost, from those of `begin` on that
    keep to it; None where there are none. It ends at a cost of `target`."""
    rents = [(prices.price * (share * task.scale / prices.scale)).astype(np.int64) for share in SHARES]
    worth = _worth(task)
    ways = [path for path in (_kept(task, own, worth) for own in begin) if path is not None]
    for price in (rents[0], rents[-1]):
        path, load = np.zeros(len(task.access), dtype=np.int64), np.zeros(task.shape, dtype=np.int64)
        if not task.route(
            np.argsort(-worth, kind="stable"),
            path,
            load,
            price=price,
            room=task.room,
            scale=task.scale,
            fee=task.fee,
        )[1]:
            ways.append(path)
    if not ways:
        return None
    path = min(ways, key=lambda own: task.cost(task.everybody, own))
    search = _Search(task, path, rents, worth, limits)
    search.run(target)
    return path, task.cost(task.everybody, path)


class _Search:
    def __init__(
        self, task: MoveTask, path: Ints, rents: list[Ints], worth: Floats, limits: SolveLimits
    ) -> None:
        self.task, self.path, self.rents, self.limits = task, path, rents, limits
        self.load = np.zeros(task.shape, dtype=np.int64)
        task.count(task.everybody, 1, path, self.load)
        self.scale, self.fee = task.scale, task.fee
        self.cost = task.cost(task.everybody, path, self.scale, self.fee)
        self.rng = np.random.default_rng(limits.seed)
        self.worth = np.log(np.maximum(worth, 1e-9))
        self.live: dict[int, Ints] = {}
        tight = rents[-1].max(axis=0).astype(np.float64)
        self.chance = np.cumsum(tight + max(tight.mean(), 1.0))

    def run(self, target: int) -> None:
        idle = 0
        patience = min(MOST_PATIENCE, PATIENCE * len(self.task.size))
        while (
            idle < patience
            and self.cost >= (target + 1) * self.scale
            and not self.limits.stopped
            and self.limits.left > 0
        ):
            before = self.cost
            self._round()
            idle = 0 if self.cost < before else idle + 1

    def _round(self) -> None:
        task, rng = self.task, self.rng
        step = int(np.searchsorted(self.chance, rng.random() * self.chance[-1]))
        if step not in self.live:
            self.live[step] = np.flatnonzero((task.start <= step) & (step < task.end))
        taken = self.live[step]
        if not len(taken):
            return
        if len(taken) > MOST_TAKEN:
            taken = rng.choice(taken, int(rng.integers(2, MOST_TAKEN + 1)), replace=False)
        spans = [slice(int(task.first[b]), int(task.first[b + 1])) for b in taken.tolist()]
        kept = [self.path[span].copy() for span in spans]
        before = task.cost(taken, self.path, self.scale, self.fee)
        task.count(taken, -1, self.path, self.load)
        order = taken[np.argsort(-(self.worth[taken] + NOISE * rng.standard_normal(len(taken))))]
        price = self.rents[int(rng.integers(len(self.rents)))]
        _, homeless = task.route(
            order, self.path, self.load, price=price, room=task.room, scale=self.scale, fee=self.fee
        )
        after = before + 1 if homeless else task.cost(taken, self.path, self.scale, self.fee)
        if after > before:
            task.count(taken, -1, self.path, self.load)
            for span, own in zip(spans, kept, strict=True):
                self.path[span] = own
            task.count(taken, 1, self.path, self.load)
        else:
            self.cost += after - before


def _kept(task: MoveTask, path: Ints, worth: Floats) -> Ints | None:
    """`path`, where those that lie where there is too little room have other ways; None where they find
    none."""
    path, load = path.copy(), np.zeros(task.shape, dtype=np.int64)
    task.count(task.everybody, 1, path, load)
    over = load > task.room
    if not over.any():
        return path
    steps = np.arange(len(path)) - np.repeat(task.first[:-1] - task.start, np.diff(task.first))
    taken = np.flatnonzero(np.logical_or.reduceat(over[path, steps], task.first[:-1]))
    task.count(taken, -1, path, load)
    order = taken[np.argsort(-worth[taken], kind="stable")]
    price = np.zeros_like(load)
    homeless = task.route(order, path, load, price=price, room=task.room, scale=task.scale, fee=task.fee)[1]
    return None if homeless else path


def _worth(task: MoveTask) -> Floats:
    """What a buffer saves for each byte and step of room, where it has its cheapest bank and not its
    dearest."""
    accessed = np.add.reduceat(task.access, task.first[:-1]) if len(task.size) else task.access
    fine = np.where(task.weight < 0, UNLIMITED, task.weight).min(axis=1, initial=UNLIMITED)
    saved = accessed * (task.weight.max(axis=1, initial=0) - fine)
    worth: Floats = saved / np.maximum(task.size * (task.end - task.start), 1)
    return worth
