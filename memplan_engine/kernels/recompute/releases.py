"""A schedule changed at its worst steps, storage by storage: let go of and made again later, or kept."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.recompute.lazily import sequence_live
from memplan_engine.kernels.types import Flags, Ints

CANDIDATES = 48
"""Storages that are tried at a worst step, the largest ones. Chosen by hand: twice as many win little."""
DEEP = 6
"""Ops that are run again for one storage at most, one for what another reads."""
MOST_TAKEN = 12
"""Second runs that a repair takes out at most. Chosen by hand."""
NOISE = 0.6
"""By how much chance makes a change look better or worse, so that no two repairs are alike."""


@kernel
def release(
    o: OrderArrays,
    sequence: Ints,
    count: int,
    again: Flags,
    spoiled: Ints,
    cost: Ints,
    capacity: int,
    noise: float,
    stop: Flags,
) -> int:
    """Change the first `count` ops of `sequence`, in place, until at most `capacity` bytes are live: at the
    worst step one storage after another that is read again later goes, and is made again right before; of
    those that are there the one that takes least time for what it lowers. How many ops there are then; −1
    where nothing helps. After the greedy rematerialization of XLA (`HloRematerialization`), with time in
    place of its estimate and what is above the capacity, over all steps, in place of the peak. O(ops) for
    each change that is tried."""
    trial, best = np.zeros_like(sequence), np.zeros_like(sequence)
    stack = np.zeros(DEEP + 1, np.int64)
    live = sequence_live(o, sequence[:count])
    above = _above(live, capacity)
    while above > 0 and not stop[0]:
        at = int(live.argmax())
        order = _held(o, sequence[:count], at)
        best_worth, best_count = 0.0, -1
        for place in range(len(order)):
            s = order[place]
            behind = _next_read(o, sequence[:count], s, at)
            for deep in (False, True):
                more = _with_again(o, sequence, count, s, behind, deep, again, spoiled, stack, trial)
                if more < 0:
                    break
                lowered = above - _above(sequence_live(o, trial[:more]), capacity)
                if lowered <= 0:
                    continue
                taken = 1
                for i in range(more - count):
                    taken += cost[trial[behind + i]]
                worth = lowered / taken * (1 + noise * np.random.random())
                if worth > best_worth:
                    best_worth, best_count = worth, more
                    best[:more] = trial[:more]
        if best_count < 0:
            return -1
        count = best_count
        sequence[:count] = best[:count]
        live = sequence_live(o, sequence[:count])
        above = _above(live, capacity)
    return count if above <= 0 else -1


@kernel(borrows=True)
def _above(live: Ints, capacity: int) -> int:
    """What is above the capacity, over all steps, in bytes."""
    total = 0
    for i in range(len(live)):
        if live[i] > capacity:
            total += live[i] - capacity
    return total


@kernel
def _held(o: OrderArrays, sequence: Ints, at: int) -> Ints:
    """The storages that are there at `at`, which the op there does not touch and one behind it does: the
    largest ones first, CANDIDATES at most."""
    there = np.zeros(len(o.size), np.bool_)
    for i in range(at):
        op = sequence[i]
        for k in range(o.made_of[op], o.made_of[op + 1]):
            there[o.made[k]] = True
    op = sequence[at]
    for k in range(o.used_of[op], o.used_of[op + 1]):
        there[o.used[k]] = False
    for k in range(o.made_of[op], o.made_of[op + 1]):
        there[o.made[k]] = False
    # What is made anew behind is not the one that is there.
    found = np.flatnonzero(there & (_read_from(o, sequence, at + 1) | o.kept))
    return found[np.argsort(-o.size[found], kind="mergesort")[:CANDIDATES]]


@kernel(borrows=True)
def _next_read(o: OrderArrays, sequence: Ints, s: int, at: int) -> int:
    """The first place behind `at` of an op that touches `s` without making it; the end if there is none."""
    for i in range(at + 1, len(sequence)):
        op = sequence[i]
        for k in range(o.used_of[op], o.used_of[op + 1]):
            if o.used[k] == s:
                return i
    return len(sequence)


@kernel
def _with_again(
    o: OrderArrays,
    sequence: Ints,
    count: int,
    s: int,
    behind: int,
    deep: bool,
    again: Flags,
    spoiled: Ints,
    stack: Ints,
    trial: Ints,
) -> int:
    """The first `count` ops of `sequence`, into `trial`, with what makes `s` run again at `behind`; `deep`:
    also what makes that which it reads and which nobody reads from there on. How many there are then; −1
    where one may not run again there, or there is no room. What is not made again is held until there."""
    n = len(o.out)
    # Which of the ops that run once comes next: what is written over by then cannot be made again.
    step = n
    ran = np.zeros(n, np.bool_)
    for i in range(behind):
        ran[sequence[i]] = True
    for i in range(behind, count):
        if not ran[sequence[i]]:
            step = sequence[i]
            break
    maker = o.maker[s]
    if not again[maker] or spoiled[maker] < step or (step == n and spoiled[maker] < n):
        return -1
    stack[0], depth = maker, 1
    if deep:
        needed = _read_from(o, sequence[:count], behind)
        i = 0
        while i < depth:
            op = stack[i]
            for k in range(o.used_of[op], o.used_of[op + 1]):
                other = o.maker[o.used[k]]
                known = other < 0 or needed[o.used[k]] or o.kept[o.used[k]]
                for j in range(depth):
                    known = known or stack[j] == other
                if known or not again[other] or spoiled[other] < step or depth == DEEP:
                    continue
                stack[depth] = other
                depth += 1
            i += 1
        if depth == 1:
            return -1
    if count + depth > len(trial):
        return -1
    # In the order of the graph: who reads what another makes comes behind it.
    chosen = np.sort(stack[:depth])
    trial[:behind] = sequence[:behind]
    trial[behind : behind + depth] = chosen
    trial[behind + depth : count + depth] = sequence[behind:count]
    return count + depth


@kernel
def _read_from(o: OrderArrays, sequence: Ints, behind: int) -> Flags:
    """The storages that an op from `behind` on reads before they are made anew."""
    needed = np.zeros(len(o.size), np.bool_)
    for i in range(len(sequence) - 1, behind - 1, -1):
        op = sequence[i]
        for k in range(o.made_of[op], o.made_of[op + 1]):
            needed[o.made[k]] = False
        for k in range(o.used_of[op], o.used_of[op + 1]):
            needed[o.used[k]] = True
    return needed


@kernel
def tighten(o: OrderArrays, sequence: Ints, count: int, cost: Ints, capacity: int, stop: Flags) -> int:
    """Leave out of the first `count` ops of `sequence`, in place, what need not run again for `capacity`
    bytes, dearest first; how many there are then."""
    trial = np.zeros_like(sequence)
    places = _second_runs(o, sequence[:count])
    places = places[np.argsort(-cost[sequence[places]], kind="mergesort")]
    several = len(places)
    for k in range(several):
        if stop[0]:
            break
        at = places[k]
        trial[:at] = sequence[:at]
        trial[at : count - 1] = sequence[at + 1 : count]
        if sequence_live(o, trial[: count - 1]).max() <= capacity:
            count -= 1
            sequence[:count] = trial[:count]
            for j in range(k + 1, several):
                if places[j] > at:
                    places[j] -= 1
    return count


@kernel
def repair(
    o: OrderArrays,
    sequence: Ints,
    count: int,
    again: Flags,
    spoiled: Ints,
    cost: Ints,
    capacity: int,
    rounds: int,
    seed: int,
    stop: Flags,
) -> int:
    """Take some of what runs again out of the first `count` ops of `sequence`, in place, let others go for it
    and keep what takes no longer, `rounds` times (a large neighbourhood search, Shaw, 1998); how many ops
    there are then."""
    np.random.seed(seed)
    trial = np.zeros_like(sequence)
    for _ in range(rounds):
        if stop[0]:
            break
        less = _without_some(o, sequence, count, trial)
        if less == count:
            break
        more = release(o, trial, less, again, spoiled, cost, capacity, NOISE, stop)
        if more < 0:
            continue
        more = tighten(o, trial, more, cost, capacity, stop)
        if cost[trial[:more]].sum() <= cost[sequence[:count]].sum():
            count = more
            sequence[:count] = trial[:count]
    return count


@kernel
def _second_runs(o: OrderArrays, sequence: Ints) -> Ints:
    """The places in `sequence` of ops that have run before."""
    known = np.zeros(len(o.out), np.bool_)
    found = np.zeros(len(sequence), np.int64)
    several = 0
    for i in range(len(sequence)):
        if known[sequence[i]]:
            found[several] = i
            several += 1
        known[sequence[i]] = True
    return found[:several]


@kernel
def _without_some(o: OrderArrays, sequence: Ints, count: int, trial: Ints) -> int:
    """The first `count` ops of `sequence`, into `trial`, without some of those that run again: a stretch of
    them, or here and there; how many are left."""
    second = _second_runs(o, sequence[:count])
    several = len(second)
    if several == 0:
        return count
    gone = np.zeros(count, np.bool_)
    length = 1 + _below(min(several, MOST_TAKEN))
    if np.random.random() < 0.5:
        first = _below(several - length + 1)
        gone[second[first : first + length]] = True
    else:
        for _ in range(length):
            gone[second[_below(several)]] = True
    left = 0
    for i in range(count):
        if not gone[i]:
            trial[left] = sequence[i]
            left += 1
    return left


@kernel(borrows=True)
def _below(count: int) -> int:
    """A number from 0 to `count` − 1 by chance. Compiled or interpreted, it is the same one for a seed."""
    return int(np.random.random() * count)
