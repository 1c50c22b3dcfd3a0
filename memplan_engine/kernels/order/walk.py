"""Running units one after another: what is live, what is ready, and which units may run at once without loss.

The set S of units that have run is closed: all predecessors of its members are in it. f(S), the live bytes
after S, are those of the storages made in S that somebody outside S still touches, or that are returned. f is
a cut function of a directed hypergraph, hence submodular: what a unit adds to f only falls as S grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.types import Ints

READY, RUN, LIVE, PEAK = range(4)
"""Rows of `Walk.counts`: units that are ready and that have run; live bytes now, and at the worst so far."""


class Walk(NamedTuple):
    """The set that has run, and what follows from it: per unit how many predecessors it `waits` for and its
    `place` among those that are `ready` (−1: not there); per storage how many users are `left`, a return
    counting as one; `order`: what has run."""

    waits: Ints
    left: Ints
    ready: Ints
    place: Ints
    order: Ints
    counts: Ints


@kernel
def begin_walk(o: OrderArrays) -> Walk:
    """Nothing has run."""
    n = len(o.out)
    walk = Walk(
        o.before_of[1:] - o.before_of[:-1],
        o.users_of[1:] - o.users_of[:-1] + o.kept.astype(np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.zeros(n, np.int64),
        np.zeros(4, np.int64),
    )
    for v in range(n):
        if walk.waits[v] == 0:
            add_ready(walk, v)
    return walk


@kernel(inline=True)
def add_ready(w: Walk, v: int) -> None:
    """Put v among the ready units."""
    w.place[v] = w.counts[READY]
    w.ready[w.counts[READY]] = v
    w.counts[READY] += 1


@kernel(inline=True)
def drop_ready(w: Walk, v: int) -> None:
    """Take v from the ready units; the last one moves into its place."""
    w.counts[READY] -= 1
    last = w.ready[w.counts[READY]]
    w.ready[w.place[v]] = last
    w.place[last] = w.place[v]
    w.place[v] = -1


@kernel(borrows=True)
def rise(o: OrderArrays, w: Walk, v: int) -> int:
    """By how many bytes the live ones rise while v runs: what it makes, unless it writes over an input that
    dies with it (which is then of as many bytes)."""
    for i in range(o.over_of[v], o.over_of[v + 1]):
        if w.left[o.over[i]] == 1:
            return 0
    return o.out[v]


@kernel(borrows=True)
def freed(o: OrderArrays, w: Walk, v: int) -> int:
    """The bytes that die with v: what it is the last to touch, and what it makes for nobody."""
    nbytes = 0
    for i in range(o.used_of[v], o.used_of[v + 1]):
        if w.left[o.used[i]] == 1:
            nbytes += o.size[o.used[i]]
    for i in range(o.made_of[v], o.made_of[v + 1]):
        if w.left[o.made[i]] == 0:
            nbytes += o.size[o.made[i]]
    return nbytes


@kernel(borrows=True)
def run(o: OrderArrays, w: Walk, v: int) -> None:
    """Run the ready unit v."""
    w.counts[PEAK] = max(w.counts[PEAK], w.counts[LIVE] + rise(o, w, v))
    w.counts[LIVE] += o.out[v] - freed(o, w, v)
    for i in range(o.used_of[v], o.used_of[v + 1]):
        w.left[o.used[i]] -= 1
    drop_ready(w, v)
    w.order[w.counts[RUN]] = v
    w.counts[RUN] += 1
    for i in range(o.after_of[v], o.after_of[v + 1]):
        u = o.after[i]
        w.waits[u] -= 1
        if w.waits[u] == 0:
            add_ready(w, u)


@kernel(borrows=True)
def take_back(o: OrderArrays, w: Walk, peak: int) -> None:
    """Undo the latest `run`, before which the worst was `peak`."""
    w.counts[RUN] -= 1
    v = w.order[w.counts[RUN]]
    for i in range(o.after_of[v], o.after_of[v + 1]):
        u = o.after[i]
        if w.waits[u] == 0:
            drop_ready(w, u)
        w.waits[u] += 1
    add_ready(w, v)
    for i in range(o.used_of[v], o.used_of[v + 1]):
        w.left[o.used[i]] += 1
    w.counts[LIVE] -= o.out[v] - freed(o, w, v)
    w.counts[PEAK] = peak


@kernel
def run_free(o: OrderArrays, w: Walk, limit: int) -> None:
    """Run all that can run at once: no completion within `limit` is lost.

    A ready unit that fits into `limit` and leaves no more bytes live than before is moved to the front of
    any completion: before each later unit f only falls, since f is submodular, and what may be written over
    stays so. The same holds for a hill: a unit that leaves more, and then units that wait for nobody else and
    leave no more each, until no more bytes are live than at its foot. At that point f is least over the
    closed parts of the hill: all of them contain the first unit, and the others only lower f.
    """
    _run_valleys(o, w, limit, 0, -1)
    again = True
    while again:
        again = False
        # `_climb` changes the order of those that are ready.
        for u in np.sort(w.ready[: w.counts[READY]]):
            if w.place[u] >= 0 and _climb(o, w, limit, u):
                _run_valleys(o, w, limit, 0, -1)
                again = True


@kernel(borrows=True)
def _run_valleys(o: OrderArrays, w: Walk, limit: int, first: int, foot: int) -> bool:
    """Run those of the ready units, from place `first` on, that fit and leave no more bytes live than before,
    until none is left or no more than `foot` are live; whether any ran."""
    ran, i = False, first
    while i < w.counts[READY] and w.counts[LIVE] > foot:
        v = w.ready[i]
        if w.counts[LIVE] + rise(o, w, v) <= limit and o.out[v] <= freed(o, w, v):
            run(o, w, v)
            ran, i = True, first
        else:
            i += 1
    return ran


@kernel(borrows=True)
def _climb(o: OrderArrays, w: Walk, limit: int, u: int) -> bool:
    """Run u and then valleys among what it makes ready, until no more bytes are live than before; nothing
    where that fails."""
    foot, peak, began = w.counts[LIVE], w.counts[PEAK], w.counts[RUN]
    if foot + rise(o, w, u) > limit:
        return False
    # u goes behind all others, so that from its place on stand only those that it makes ready.
    drop_ready(w, u)
    add_ready(w, u)
    first = w.counts[READY] - 1
    run(o, w, u)
    _run_valleys(o, w, limit, first, foot)
    if w.counts[LIVE] <= foot:
        return True
    while w.counts[RUN] > began:
        take_back(o, w, peak)
    return False


@kernel
def replay_order(o: OrderArrays, order: Ints) -> Ints:
    """The live bytes while each unit of `order` runs, in that order; empty when a unit comes too early."""
    w = begin_walk(o)
    live = np.zeros(len(order), np.int64)
    for i in range(len(order)):
        v = order[i]
        if w.place[v] < 0:
            return live[:0]
        live[i] = w.counts[LIVE] + rise(o, w, v)
        run(o, w, v)
    return live
