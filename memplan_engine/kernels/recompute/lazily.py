"""A schedule that lets go of storages at one step, and makes each again right before it is needed."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.types import Flags, Ints

LONGEST_RUN = 8
"""Storages that are let go of or kept together at most. Chosen by hand, as RUNS."""
MOST_RUNS = 4
"""Runs of all ops together, in those of all once, that a sequence has room for; what takes more is none."""
RUNS = 0.5
"""How often it is more than one."""


@kernel
def lazy_sequence(
    o: OrderArrays, at: int, gone: Flags, hold: int, again: Flags, spoiled: Ints, sequence: Ints
) -> int:
    """The ops 0 … n − 1 in order, into `sequence`, of which those whose storages are `gone` run again behind
    the step `at`, where something needs them and what they read is there, or at the end for what is returned.
    What is made again is let go of once more where nothing reads it for `hold` steps. How many there are
    then, −1 where one would have to run again that may not: it is none of `again`, or its step `spoiled`, at
    which something that it reads is written over, has passed. O(ops + reads · log(readers))."""
    n = len(o.out)
    there = np.ones(len(o.size), np.bool_)
    stack, cursor = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    count = 0
    for step in range(n):
        if step == at:
            for s in range(len(o.size)):
                there[s] = not (gone[s] and o.maker[s] < at)
        begun = count
        count = _run(o, step, step, there, again, spoiled, stack, cursor, sequence, count)
        if count < 0:
            return -1
        if step >= at:
            _let_go(o, at, gone, hold, step, there, sequence[begun:count])
    for s in range(len(o.size)):
        if o.kept[s] and not there[s]:
            op = o.maker[s]
            if not again[op] or spoiled[op] < n:
                return -1
            count = _run(o, op, n, there, again, spoiled, stack, cursor, sequence, count)
            if count < 0:
                return -1
    return count


@kernel(borrows=True)
def _run(
    o: OrderArrays,
    op: int,
    step: int,
    there: Flags,
    again: Flags,
    spoiled: Ints,
    stack: Ints,
    cursor: Ints,
    sequence: Ints,
    count: int,
) -> int:
    """Run `op` at `step`, before it what has to run again for it; how many have run then, −1 where they
    cannot."""
    stack[0], depth = op, 1
    cursor[op] = o.used_of[op]
    while depth > 0:
        top = stack[depth - 1]
        missing = -1
        while cursor[top] < o.used_of[top + 1]:
            if not there[o.used[cursor[top]]]:
                missing = o.used[cursor[top]]
                break
            cursor[top] += 1
        if missing < 0:
            if count == len(sequence):
                return -1
            sequence[count] = top
            count += 1
            for i in range(o.made_of[top], o.made_of[top + 1]):
                there[o.made[i]] = True
            depth -= 1
            continue
        maker = o.maker[missing]
        if not again[maker] or spoiled[maker] < step:
            return -1
        cursor[maker] = o.used_of[maker]
        stack[depth] = maker
        depth += 1
    return count


@kernel(borrows=True)
def _let_go(o: OrderArrays, at: int, gone: Flags, hold: int, step: int, there: Flags, ran: Ints) -> None:
    """Of what the ops that `ran` at `step` have read or made, what may be made again and is not read for
    `hold` steps is there no more."""
    for op in ran:
        for i in range(o.used_of[op], o.used_of[op + 1]):
            s = o.used[i]
            if gone[s] and o.maker[s] < at and _next_use(o, s, step) > step + hold:
                there[s] = False
        for i in range(o.made_of[op], o.made_of[op + 1]):
            s = o.made[i]
            if gone[s] and o.maker[s] < at and _next_use(o, s, step) > step + hold:
                there[s] = False


@kernel(borrows=True)
def _next_use(o: OrderArrays, s: int, step: int) -> int:
    """The first op behind `step` that reads the storage `s`; `step` where there is none: it goes by itself,
    or is returned."""
    low, high = o.users_of[s], o.users_of[s + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if o.users[middle] > step:
            high = middle
        else:
            low = middle + 1
    return o.users[low] if low < end else step


@kernel
def sequence_live(o: OrderArrays, sequence: Ints) -> Ints:
    """Live bytes during each op of `sequence`: a storage is live from when it is made to the last use before
    it is made again, what is returned to the end. O(ops + uses)."""
    count, m = len(sequence), len(o.size)
    change = np.zeros(count + 1, np.int64)
    made, last = np.full(m, -1, np.int64), np.full(m, -1, np.int64)
    for i in range(count):
        op = sequence[i]
        for at in range(o.used_of[op], o.used_of[op + 1]):
            last[o.used[at]] = i
        for at in range(o.made_of[op], o.made_of[op + 1]):
            s = o.made[at]
            if made[s] >= 0:
                change[made[s]] += o.size[s]
                change[last[s] + 1] -= o.size[s]
            made[s], last[s] = i, i
    for s in range(m):
        if made[s] >= 0:
            change[made[s]] += o.size[s]
            if not o.kept[s]:
                change[last[s] + 1] -= o.size[s]
    live = np.zeros(count, np.int64)
    total = 0
    for i in range(count):
        total += change[i]
        live[i] = total
    return live


@kernel
def improve(
    o: OrderArrays,
    at: int,
    gone: Flags,
    hold: int,
    again: Flags,
    spoiled: Ints,
    cost: Ints,
    capacity: int,
    tries: int,
    seed: int,
    stop: Flags,
) -> tuple[int, int]:
    """Keep, or let go of, runs of storages of `gone` by chance, up to `tries` times, where the live bytes
    come down to `capacity` or, within it, no more runs again; the live bytes at the worst step, and what all
    takes, ns. Where they are more than `capacity` a change is kept that lowers them, whatever it takes.
    """
    np.random.seed(seed)
    n, m = len(o.out), len(o.size)
    sequence = np.zeros(MOST_RUNS * n + 1, np.int64)
    choice = np.zeros(m, np.int64)
    count = 0
    for s in range(m):
        if o.maker[s] < at and again[o.maker[s]] and o.size[s] > 0:
            choice[count] = s
            count += 1
    peak, total = weigh(o, at, gone, hold, again, spoiled, cost, sequence)
    for _ in range(tries if count else 0):
        if stop[0]:
            break
        first = np.random.randint(count)
        length = 1 + np.random.randint(LONGEST_RUN) if np.random.random() < RUNS else 1
        end = min(count, first + length)
        # All of a run alike, as its first is not: single ones of it would not pay.
        value = not gone[choice[first]]
        before = gone[choice[first:end]]
        gone[choice[first:end]] = value
        new_peak, new_total = weigh(o, at, gone, hold, again, spoiled, cost, sequence)
        if new_peak >= 0 and (
            (new_peak <= capacity and (peak > capacity or new_total <= total))
            or (peak > capacity and new_peak < peak)
        ):
            peak, total = new_peak, new_total
        else:
            gone[choice[first:end]] = before
    return peak, total


@kernel
def weigh(
    o: OrderArrays,
    at: int,
    gone: Flags,
    hold: int,
    again: Flags,
    spoiled: Ints,
    cost: Ints,
    sequence: Ints,
) -> tuple[int, int]:
    """The live bytes at the worst step, −1 where it cannot be, and what all takes, ns."""
    count = lazy_sequence(o, at, gone, hold, again, spoiled, sequence)
    if count < 0:
        return -1, 0
    total = 0
    for i in range(count):
        total += cost[sequence[i]]
    live = sequence_live(o, sequence[:count])
    peak = 0
    for i in range(count):
        peak = max(peak, live[i])
    return peak, total
