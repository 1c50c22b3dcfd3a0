"""A question of order with its end decided: what can run last without loss runs there."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.backwards import free_ending
from memplan_engine.problem import Ints


def with_ending(o: OrderArrays, limit: int) -> OrderArrays:
    """`o` in which the units that `free_ending` gives for `limit` wait for all others, and each for the one
    before it. Of the orders within `limit`, and within anything above it, a best one is left."""
    ending = free_ending(o, limit)
    if len(ending) == 0:
        return o
    n = len(o.out)
    inner = np.ones(n, np.bool_)
    inner[ending] = False
    waits = np.repeat(np.arange(n), np.diff(o.before_of))
    followed = np.zeros(n, np.bool_)
    followed[o.before[inner[waits]]] = True
    last = np.flatnonzero(inner & ~followed)
    first = np.concatenate([o.before, last, ending[:-1]])
    second = np.concatenate([waits, np.full(len(last), ending[0]), ending[1:]])
    pairs = np.unique(np.stack([first, second]), axis=1)
    before_of, before = _listed(pairs[1], pairs[0], n)
    after_of, after = _listed(pairs[0], pairs[1], n)
    return o._replace(before_of=before_of, before=before, after_of=after_of, after=after)


def _listed(owner: Ints, other: Ints, n: int) -> tuple[Ints, Ints]:
    """Where the list of each unit begins, and all of them one behind the other."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]).astype(np.int64)
    return starts, other[np.argsort(owner, kind="stable")].astype(np.int64)
