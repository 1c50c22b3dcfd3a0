"""Exact search for the closed sets that an order of least peak passes, best first.

A state is a closed set; its key is the least worst case by which it is reached, or what any way to complete
it is proved to need. States are taken by key, then the largest first: while no key rises, the search dives.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.flow import Network, push_flow
from memplan_engine.kernels.order.walk import (
    LIVE,
    PEAK,
    READY,
    RUN,
    Walk,
    add_ready,
    begin_walk,
    rise,
    run,
    run_free,
)
from memplan_engine.kernels.types import Flags, Ints

FOUND, EXHAUSTED, LIMIT = range(3)
"""How a search ends: with an order of least peak; with none below `high`; stopped, or out of states."""
START, FREE_ONLY = -1, -2
"""In `Pool.unit`: the first state; one in which units ran for nothing, since its key has risen."""


class Cuts(NamedTuple):
    """The cuts that prune: row k is a flow of `flow[k]` bytes from the predecessors of `unit[k]` to it, as
    the `room` that it leaves in the network; while that unit runs `above[k]` bytes more are live."""

    unit: Ints
    above: Ints
    flow: Ints
    room: Ints
    net: Network


class Pool(NamedTuple):
    """The states: the set `members`, a `digest` of it, the `key`, what is proved of any completion (`floor`),
    the state from which and the unit by which it was reached, under which limit; `table` finds one by its
    set. counts[0]: how many."""

    members: Flags
    digest: Ints
    key: Ints
    floor: Ints
    parent: Ints
    unit: Ints
    limit: Ints
    table: Ints
    counts: Ints


@kernel
def search_closed_sets(
    o: OrderArrays, low: int, high: int, cuts: Cuts, tries: int, most: int, stop: Flags, counter: Ints
) -> tuple[int, int, Ints]:
    """How the search ends, the proved bound, and the order where one is found.

    Orders of a peak of `low` or less count as equal, those of `high` or more are not looked for. At each
    state up to `tries` of the `cuts` are tried. `most`: states to be kept.
    """
    pool, codes = _begin_pool(o, most), _codes(len(o.out))
    heap = [(low, 0, 0, 0)]
    heap.pop()
    w = begin_walk(o)
    run_free(o, w, low)
    _push(pool, heap, w, codes, (low, START, START))
    room, rank = cuts.net.room.copy(), np.arange(len(cuts.unit))
    proved, none = low, np.zeros(0, np.int64)
    while len(heap) > 0:
        key, _, _, state = heapq.heappop(heap)
        if key > pool.key[state]:
            continue
        proved = max(proved, key)
        if stop[0] or pool.counts[0] + len(o.out) >= most:
            return LIMIT, proved, none
        counter[0] += 1
        w = _load(o, pool.members[state])
        if w.counts[RUN] == len(o.out):
            return FOUND, key, _order_to(o, pool, state)
        bound = _conditioned_bound(o, pool.members[state], cuts, room, rank, tries, high)
        pool.floor[state] = bound
        if bound > key:
            _raise_key(o, pool, heap, w, codes, (bound, state, high))
            continue
        ready = np.sort(w.ready[: w.counts[READY]])
        for v in ready:
            limit = max(key, w.counts[LIVE] + rise(o, w, v))
            if limit < high:
                after = _load(o, pool.members[state])
                run(o, after, v)
                run_free(o, after, limit)
                _push(pool, heap, after, codes, (limit, state, v))
    return EXHAUSTED, high, none


@kernel
def _begin_pool(o: OrderArrays, most: int) -> Pool:
    slots = 16
    while slots < 2 * most:
        slots *= 2
    return Pool(
        np.empty((most, len(o.out)), np.bool_),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.full(slots, -1, np.int64),
        np.zeros(1, np.int64),
    )


@kernel
def _codes(n: int) -> Ints:
    """A number of 64 bits for each unit, from its index alone: the digest of a set is their sum."""
    codes = np.empty(n, np.int64)
    for v in range(n):
        x = np.uint64(v + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        codes[v] = np.int64(x ^ (x >> np.uint64(31)))
    return codes


@kernel
def _push(
    pool: Pool, heap: list[tuple[int, int, int, int]], w: Walk, codes: Ints, way: tuple[int, int, int]
) -> None:
    """Keep what `w` has come to by `way` (limit, from which state, by which unit), unless it was reached as
    cheaply."""
    members, digest = np.zeros(pool.members.shape[1], np.bool_), np.int64(0)
    for i in range(w.counts[RUN]):
        members[w.order[i]] = True
        digest += codes[w.order[i]]
    slot = digest & (len(pool.table) - 1)
    state = pool.table[slot]
    while state >= 0 and (pool.digest[state] != digest or np.any(pool.members[state] != members)):
        slot = (slot + 1) & (len(pool.table) - 1)
        state = pool.table[slot]
    key = way[0]
    if state < 0:
        state = pool.counts[0]
        pool.counts[0] += 1
        pool.table[slot], pool.digest[state], pool.members[state] = state, digest, members
    else:
        key = max(key, pool.floor[state])
        if pool.key[state] <= key:
            return
    pool.key[state], pool.limit[state], pool.parent[state], pool.unit[state] = key, way[0], way[1], way[2]
    heapq.heappush(heap, (key, -w.counts[RUN], w.counts[LIVE], state))


@kernel
def _raise_key(
    o: OrderArrays,
    pool: Pool,
    heap: list[tuple[int, int, int, int]],
    w: Walk,
    codes: Ints,
    way: tuple[int, int, int],
) -> None:
    """Come back to a state (`way`: bound, state, high) when all of a key below the proved bound are done;
    units that fit now run at once."""
    bound, state, high = way
    began = w.counts[RUN]
    pool.key[state] = bound
    if bound >= high:
        return
    run_free(o, w, bound)
    if w.counts[RUN] > began:
        _push(pool, heap, w, codes, (bound, state, FREE_ONLY))
    else:
        heapq.heappush(heap, (bound, -began, w.counts[LIVE], state))


@kernel
def _load(o: OrderArrays, members: Flags) -> Walk:
    """The walk that stands where `members` have run."""
    w = begin_walk(o)
    w.counts[:] = 0
    w.place[:] = -1
    for v in range(len(members)):
        if members[v]:
            w.order[w.counts[RUN]] = v
            w.counts[RUN] += 1
            for i in range(o.used_of[v], o.used_of[v + 1]):
                w.left[o.used[i]] -= 1
            for i in range(o.after_of[v], o.after_of[v + 1]):
                w.waits[o.after[i]] -= 1
    for v in range(len(members)):
        if not members[v] and w.waits[v] == 0:
            add_ready(w, v)
    for e in range(len(o.size)):
        if members[o.maker[e]] and w.left[e] > 0:
            w.counts[LIVE] += o.size[e]
    w.counts[PEAK] = w.counts[LIVE]
    return w


@kernel
def _conditioned_bound(
    o: OrderArrays, members: Flags, cuts: Cuts, room: Ints, rank: Ints, tries: int, high: int
) -> int:
    """What every completion of `members` needs at least, as far as `tries` of the cuts tell. What proves
    that `high` is reached comes first the next time."""
    n, nodes, best = len(members), len(cuts.net.arcs_of) - 1, 0
    inside, outside = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    outside[n:] = o.kept
    net = Network(cuts.net.arcs_of, cuts.net.head, cuts.net.back, room)
    for place in range(len(rank)):
        k = rank[place]
        v = cuts.unit[k]
        if members[v]:
            continue
        if tries == 0:
            break
        tries -= 1
        inside[:n], outside[:n] = members, False
        for i in range(o.before_of[v], o.before_of[v + 1]):
            inside[o.before[i]] = True
        outside[v] = True
        room[:] = cuts.room[k]
        above = cuts.flow[k] + cuts.above[k]
        best = max(best, above + push_flow(net, inside, outside, high - above))
        if best >= high:
            rank[1 : place + 1] = rank[:place].copy()
            rank[0] = k
            break
    return best


@kernel
def _order_to(o: OrderArrays, pool: Pool, state: int) -> Ints:
    """The order in which the units of `state` ran, from the first state on."""
    chain = [state]
    while pool.parent[chain[-1]] >= 0:
        chain.append(pool.parent[chain[-1]])
    order, done = np.empty(len(o.out), np.int64), 0
    for i in range(len(chain) - 1, -1, -1):
        at = chain[i]
        w = begin_walk(o) if pool.parent[at] < 0 else _load(o, pool.members[pool.parent[at]])
        if pool.unit[at] >= 0:
            run(o, w, pool.unit[at])
        run_free(o, w, pool.limit[at])
        order[done : w.counts[RUN]] = w.order[done : w.counts[RUN]]
        done = w.counts[RUN]
    return order
