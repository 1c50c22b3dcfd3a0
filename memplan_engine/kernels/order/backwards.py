"""Units that may run last without loss, from the end of an order on: what `walk` does at its beginning, in a
mirror.

S is the set of units that have not been placed, closed as ever. With v last in it f(S − v) bytes are live
before v: what v makes for later is gone, what it is the last to touch has come.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.types import Ints

FREE, LEFT, LIVE = range(3)
"""Rows of `Ending.counts`: units that may be last in S, those in S; live bytes after all of S."""


class Ending(NamedTuple):
    """What is placed behind S: per unit how many of those that wait for it are in S (`waiting`) and its
    `place` among those that may be last, `free` (−1: not there); per storage how many of its users are
    placed, a return counting as one (`later`), and how many units in S may write over it (`writers`).
    `order`: the units, of which those from counts[LEFT] on are placed."""

    waiting: Ints
    later: Ints
    writers: Ints
    free: Ints
    place: Ints
    order: Ints
    counts: Ints


@kernel
def free_ending(o: OrderArrays, limit: int) -> Ints:
    """The units that can be last, in their order: no order within `limit`, or within anything above it, is
    lost by putting them there.

    A unit that fits into `limit` and leaves no more bytes live before it than after it moves to the end of
    any order of S: f is submodular, so without it every set on the way has no more bytes. But nobody else in
    S may want to write over what it touches: after the move that would still be needed. The same holds for a
    hill, as in `run_free`.
    """
    w = begin_ending(o)
    again = True
    while again:
        again = _place_valleys(o, w, limit, 0, -1)
        # `_climb` changes the order of those that are free.
        for u in np.sort(w.free[: w.counts[FREE]])[::-1]:
            if w.place[u] >= 0 and _climb(o, w, limit, u):
                again = True
                break
    return w.order[w.counts[LEFT] :]


@kernel
def begin_ending(o: OrderArrays) -> Ending:
    """Nothing is placed."""
    n, m = len(o.out), len(o.size)
    w = Ending(
        o.after_of[1:] - o.after_of[:-1],
        o.kept.astype(np.int64),
        np.zeros(m, np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1, np.int64),
        np.zeros(n, np.int64),
        np.array([0, n, 0]),
    )
    for e in range(m):
        if o.kept[e]:
            w.counts[LIVE] += o.size[e]
    for e in o.over:
        w.writers[e] += 1
    for v in range(n):
        if w.waiting[v] == 0:
            _add_free(w, v)
    return w


@kernel(inline=True)
def _add_free(w: Ending, v: int) -> None:
    w.place[v] = w.counts[FREE]
    w.free[w.counts[FREE]] = v
    w.counts[FREE] += 1


@kernel(inline=True)
def _drop_free(w: Ending, v: int) -> None:
    w.counts[FREE] -= 1
    last = w.free[w.counts[FREE]]
    w.free[w.place[v]] = last
    w.place[last] = w.place[v]
    w.place[v] = -1


@kernel(borrows=True)
def _gain(o: OrderArrays, w: Ending, v: int) -> int:
    """By how many bytes fewer are live before v, last in S, than after it."""
    nbytes = 0
    for i in range(o.made_of[v], o.made_of[v + 1]):
        if w.later[o.made[i]] > 0:
            nbytes += o.size[o.made[i]]
    for i in range(o.used_of[v], o.used_of[v + 1]):
        if w.later[o.used[i]] == 0:
            nbytes -= o.size[o.used[i]]
    return nbytes


@kernel(borrows=True)
def before_last(o: OrderArrays, w: Ending, v: int) -> int:
    """The bytes that are live while v runs, last in S."""
    rise = o.out[v]
    for i in range(o.over_of[v], o.over_of[v + 1]):
        if w.later[o.over[i]] == 0:
            rise = 0
    return w.counts[LIVE] - _gain(o, w, v) + rise


@kernel(borrows=True)
def _fits(o: OrderArrays, w: Ending, limit: int, v: int) -> bool:
    """Whether v may be last in S within `limit`, and takes from nobody in S what that may write over."""
    for i in range(o.over_of[v], o.over_of[v + 1]):
        w.writers[o.over[i]] -= 1
    alone = True
    for i in range(o.used_of[v], o.used_of[v + 1]):
        alone &= w.writers[o.used[i]] == 0
    for i in range(o.over_of[v], o.over_of[v + 1]):
        w.writers[o.over[i]] += 1
    return alone and before_last(o, w, v) <= limit


@kernel(borrows=True)
def place_last(o: OrderArrays, w: Ending, v: int) -> None:
    """Put v, which may be last, at the end of S."""
    w.counts[LIVE] -= _gain(o, w, v)
    for i in range(o.used_of[v], o.used_of[v + 1]):
        w.later[o.used[i]] += 1
    for i in range(o.over_of[v], o.over_of[v + 1]):
        w.writers[o.over[i]] -= 1
    _drop_free(w, v)
    w.counts[LEFT] -= 1
    w.order[w.counts[LEFT]] = v
    for i in range(o.before_of[v], o.before_of[v + 1]):
        u = o.before[i]
        w.waiting[u] -= 1
        if w.waiting[u] == 0:
            _add_free(w, u)


@kernel(borrows=True)
def _take_back(o: OrderArrays, w: Ending) -> None:
    """Undo the latest `place_last`."""
    v = w.order[w.counts[LEFT]]
    w.counts[LEFT] += 1
    for i in range(o.before_of[v], o.before_of[v + 1]):
        u = o.before[i]
        if w.waiting[u] == 0:
            _drop_free(w, u)
        w.waiting[u] += 1
    _add_free(w, v)
    for i in range(o.over_of[v], o.over_of[v + 1]):
        w.writers[o.over[i]] += 1
    for i in range(o.used_of[v], o.used_of[v + 1]):
        w.later[o.used[i]] -= 1
    w.counts[LIVE] += _gain(o, w, v)


@kernel(borrows=True)
def _place_valleys(o: OrderArrays, w: Ending, limit: int, first: int, foot: int) -> bool:
    """Place those of the free units, from place `first` on, that fit and before which no more bytes are live
    than after them, until none is left or no more than `foot` are live; whether any was placed."""
    placed, i = False, first
    while i < w.counts[FREE] and w.counts[LIVE] > foot:
        v = w.free[i]
        if _gain(o, w, v) >= 0 and _fits(o, w, limit, v):
            place_last(o, w, v)
            placed, i = True, first
        else:
            i += 1
    return placed


@kernel(borrows=True)
def _climb(o: OrderArrays, w: Ending, limit: int, u: int) -> bool:
    """Place u and then valleys among what that frees, until no more bytes are live than before; nothing where
    that fails."""
    foot, began = w.counts[LIVE], w.counts[LEFT]
    if not _fits(o, w, limit, u):
        return False
    # u goes behind all others, so that from its place on stand only those that it frees.
    _drop_free(w, u)
    _add_free(w, u)
    first = w.counts[FREE] - 1
    place_last(o, w, u)
    _place_valleys(o, w, limit, first, foot)
    if w.counts[LIVE] <= foot:
        return True
    while w.counts[LEFT] < began:
        _take_back(o, w)
    return False
