"""Whichever of some units runs first, or last: sets of which each end needs as many bytes as a proof wants.

Let D be units of which no other waits for one in D (those at the end of an order), or which wait for no other
(those at its beginning). In any order one of D runs first, before all others of D; if each that can be the
first needs `target` bytes then, so does every order. A unit that needs less is no end of such a set, nor of
any smaller one: it is left out, and what is left is the largest set that proves something, or nothing.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.backwards import FREE, LEFT, before_last, begin_ending, place_last
from memplan_engine.kernels.order.flow import Network, push_flow
from memplan_engine.kernels.order.walk import LIVE, READY, RUN, begin_walk, rise, run
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1


@kernel
def first_ends(o: OrderArrays, net: Network, target: int, stop: Flags) -> Ints:
    """The units of which whichever runs first, before the others, needs `target` bytes; empty where no set of
    units proves that, or it was stopped."""
    n = len(o.out)
    w, rest, room = begin_walk(o), np.ones(n, np.bool_), net.room.copy()
    nothing, proved, needs = np.zeros(n, np.bool_), np.zeros(n, np.int64), np.empty(n, np.int64)
    while w.counts[READY] > 0 and not stop[0]:
        ends = w.ready[: w.counts[READY]].copy()
        for v in ends:
            needs[v] = w.counts[LIVE] + rise(o, w, v)
        chosen = _one_that_fails(o, net, room, ends, needs, proved, w.counts[RUN], nothing, rest, target)
        if chosen == NOBODY:
            return ends
        run(o, w, chosen)
        rest[chosen] = False
    return w.ready[:0]


@kernel
def last_ends(o: OrderArrays, net: Network, target: int, stop: Flags) -> Ints:
    """The units of which whichever runs last, behind the others, needs `target` bytes; empty as above."""
    n = len(o.out)
    w, rest, room = begin_ending(o), np.ones(n, np.bool_), net.room.copy()
    nothing, proved, needs = np.zeros(n, np.bool_), np.zeros(n, np.int64), np.empty(n, np.int64)
    while w.counts[FREE] > 0 and not stop[0]:
        ends = w.free[: w.counts[FREE]].copy()
        for v in ends:
            needs[v] = before_last(o, w, v)
        chosen = _one_that_fails(o, net, room, ends, needs, proved, n - w.counts[LEFT], rest, nothing, target)
        if chosen == NOBODY:
            return ends
        place_last(o, w, chosen)
        rest[chosen] = False
    return w.free[:0]


@kernel
def _one_that_fails(
    o: OrderArrays,
    net: Network,
    room: Ints,
    ends: Ints,
    needs: Ints,
    proved: Ints,
    left_out: int,
    ran: Flags,
    waits: Flags,
    target: int,
) -> int:
    """One of `ends` that can run with fewer than `target` bytes after all others that `ran` and before all
    others that `waits`; NOBODY if there is none. `needs`: with what each runs if nothing else has. `proved`:
    how many units were `left_out`, and one, when it was last proved of each that it cannot."""
    ends = ends[np.argsort(needs[ends])]
    if needs[ends[0]] < target:
        return ends[0]
    # First those of which nothing is known, then those of which it was proved for a larger set.
    for known in (False, True):
        for v in ends:
            if (proved[v] > 0) == known and proved[v] != left_out + 1:
                if not _is_needed(o, net, room, v, ran, waits, target):
                    return v
                proved[v] = left_out + 1
    return NOBODY


@kernel
def _is_needed(
    o: OrderArrays, net: Network, room: Ints, v: int, ran: Flags, waits: Flags, target: int
) -> bool:
    """Whether cuts prove `target` bytes for v after all others that `ran` and before those that `waits`, in
    each way in which it can run."""
    n = len(o.out)
    inside, outside = np.zeros(n + len(o.size), np.bool_), np.zeros(n + len(o.size), np.bool_)
    outside[:n], outside[n:] = waits, o.kept
    outside[v] = True
    for way in range(NOBODY, o.over_of[v + 1] - o.over_of[v]):
        inside[:n] = ran
        for i in range(o.before_of[v], o.before_of[v + 1]):
            inside[o.before[i]] = True
        wanted = target
        if way == NOBODY:
            wanted -= o.out[v]
        else:
            over = o.over[o.over_of[v] + way]
            for i in range(o.users_of[over], o.users_of[over + 1]):
                inside[o.users[i]] = True
        inside[v] = False
        net.room[:] = room
        if wanted > 0 and push_flow(net, inside, outside, wanted) < wanted:
            return False
    return True
