"""When storages are copied to the host and back beside the ops of a graph, and how long these wait for it.

Each direction has a channel of its own, which copies one storage after another while ops run: the copy
engines of a GPU, each with a stream. A storage is there until its copy is done, and again from where its way
back begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

ENDLESS = 2**62
BOTH = 0.5
"""How often a change takes one gap for another, rather than one more or less."""


class Gaps(NamedTuple):
    """Times at which storages may be away, in the order in which they begin: from behind step `begin` to
    before step `end`, the next that touches it. `size` in bytes, `takes` the ns of a copy in one direction.
    `by_end` has the gaps in the order of their ends, `place` of each gap the place in it."""

    begin: Ints
    end: Ints
    size: Ints
    takes: Ints
    by_end: Ints
    place: Ints


class Transfers(NamedTuple):
    """Of each gap the step before which its storage is gone (`left`), and the one before which its way back
    begins (`back`); −1 where it stays. All ops have run after `total` ns. `over` bytes are live above the
    capacity at the worst step, where it cannot be kept; nothing else is told then."""

    left: Ints
    back: Ints
    total: int
    over: int


@kernel
def live_without(live: Ints, gaps: Gaps, chosen: Flags) -> Ints:
    """Of `live` bytes at each step what is left where the storages of the `chosen` gaps are away for all of
    each. O(steps + gaps)."""
    change = np.zeros(len(live) + 1, np.int64)
    for k in range(len(chosen)):
        if chosen[k]:
            change[gaps.begin[k] + 1] += gaps.size[k]
            change[gaps.end[k]] -= gaps.size[k]
    left = np.zeros(len(live), np.int64)
    away = 0
    for step in range(len(live)):
        away += change[step]
        left[step] = live[step] - away
    return left


@kernel
def transfers(live: Ints, cost: Ints, gaps: Gaps, chosen: Flags, capacity: int) -> Transfers:
    """The copies of the `chosen` gaps within `capacity` bytes, where ops take `cost` ns each and `live` bytes
    are live at each without any copy. O(steps + gaps · (their length + log(gaps)))."""
    m = len(chosen)
    left, back = np.full(m, -1, np.int64), np.full(m, -1, np.int64)
    floor = live_without(live, gaps, chosen)
    over = 0
    for step in range(len(live)):
        over = max(over, floor[step] - capacity)
    if over > 0:
        return Transfers(left, back, 0, over)
    _plan_ways_back(cost, gaps, chosen, capacity, floor, back)
    # By the step, and those of one step by who is needed first.
    coming = np.argsort(np.where(chosen, back * m + gaps.place, ENDLESS))
    done, ready = np.zeros(m, np.int64), np.zeros(m, np.int64)
    total = _run(live, cost, gaps, chosen, capacity, coming, done, ready, left, back)
    return Transfers(left, back, total, 0)


@kernel(borrows=True)
def _plan_ways_back(cost: Ints, gaps: Gaps, chosen: Flags, capacity: int, floor: Ints, back: Ints) -> None:
    """Where the way `back` of each storage begins: as late as it is still there in time, where nothing waits
    and every storage leaves at once, and where there is room for it from there on, of what `floor` leaves."""
    # Times are counted from the end of the last op back.
    step, clock, next_begins = len(cost), 0, 0
    for place in range(len(gaps.by_end) - 1, -1, -1):
        k = gaps.by_end[place]
        if not chosen[k]:
            continue
        while step > gaps.end[k]:
            step -= 1
            clock += cost[step]
        latest = max(next_begins, clock) + gaps.takes[k]
        begin, at = step, clock
        while begin - 1 > gaps.begin[k] and at < latest and floor[begin - 1] + gaps.size[k] <= capacity:
            begin -= 1
            at += cost[begin]
            floor[begin] += gaps.size[k]
        next_begins = min(latest, at)
        back[k] = begin


@kernel(borrows=True)
def _run(
    live: Ints,
    cost: Ints,
    gaps: Gaps,
    chosen: Flags,
    capacity: int,
    coming: Ints,
    done: Ints,
    ready: Ints,
    left: Ints,
    back: Ints,
) -> int:
    """Run all ops, and each copy as soon as its channel is free, those that are `coming` from their step
    `back` on; when each storage has `left`, and how long it takes, ns. `done` and `ready` are room for when
    the copy of each is at the host, and at the device again."""
    m = len(chosen)
    clock = out_free = in_free = away = 0
    issued = leaving = returning = read = 0
    for step in range(len(cost)):
        # Whose copy is done has left without anybody waiting.
        while leaving < issued and (not chosen[leaving] or done[leaving] <= clock):
            if chosen[leaving]:
                left[leaving] = step
                away += gaps.size[leaving]
            leaving += 1
        arriving, first = 0, returning
        must = -1
        while returning < m and chosen[coming[returning]] and back[coming[returning]] == step:
            arriving += gaps.size[coming[returning]]
            must = max(must, coming[returning])
            returning += 1
        # What comes back has to be gone before, and there has to be room for it and for what the op makes.
        while leaving < issued and (leaving <= must or live[step] - away + arriving > capacity):
            if chosen[leaving]:
                clock = max(clock, done[leaving])
                left[leaving] = step
                away += gaps.size[leaving]
            leaving += 1
        away -= arriving
        for place in range(first, returning):
            in_free = max(in_free, clock) + gaps.takes[coming[place]]
            ready[coming[place]] = in_free
        while read < m and gaps.end[gaps.by_end[read]] == step:
            if chosen[gaps.by_end[read]]:
                clock = max(clock, ready[gaps.by_end[read]])
            read += 1
        clock += cost[step]
        while issued < m and gaps.begin[issued] == step:
            if chosen[issued]:
                out_free = max(out_free, clock) + gaps.takes[issued]
                done[issued] = out_free
            issued += 1
    return clock


@kernel
def cover(live: Ints, gaps: Gaps, worth: Ints, capacity: int, chosen: Flags) -> None:
    """Choose gaps until no more than `capacity` bytes are live: at the step with the most the one of most
    `worth` that spans it, over and over, while there is one. O(chosen · (steps + gaps))."""
    left = live_without(live, gaps, chosen)
    while True:
        worst = 0
        for step in range(len(left)):
            if left[step] > left[worst]:
                worst = step
        best = -1
        if left[worst] > capacity:
            for k in range(len(chosen)):
                spans = gaps.begin[k] < worst < gaps.end[k] and not chosen[k]
                if spans and (best < 0 or worth[k] > worth[best]):
                    best = k
        if best < 0:
            return
        chosen[best] = True
        left[gaps.begin[best] + 1 : gaps.end[best]] -= gaps.size[best]


@kernel
def better_gaps(
    live: Ints, cost: Ints, gaps: Gaps, chosen: Flags, capacity: int, tries: int, seed: int, stop: Flags
) -> int:
    """Choose other gaps by chance, up to `tries` times, where ops then wait for less long, or as long while
    no more bytes are copied; what all takes, ns."""
    np.random.seed(seed)
    m = len(chosen)
    now = transfers(live, cost, gaps, chosen, capacity)
    copied = 0
    for k in range(m):
        if chosen[k]:
            copied += gaps.size[k]
    for _ in range(tries if m else 0):
        if stop[0]:
            break
        first = np.random.randint(m)
        second = np.random.randint(m) if np.random.random() < BOTH else first
        if second != first and chosen[second] == chosen[first]:
            continue
        new_copied = copied + (-gaps.size[first] if chosen[first] else gaps.size[first])
        chosen[first] = not chosen[first]
        if second != first:
            new_copied += -gaps.size[second] if chosen[second] else gaps.size[second]
            chosen[second] = not chosen[second]
        new = transfers(live, cost, gaps, chosen, capacity)
        if new.over == 0 and (new.total < now.total or (new.total == now.total and new_copied <= copied)):
            now, copied = new, new_copied
        else:
            chosen[first] = not chosen[first]
            if second != first:
                chosen[second] = not chosen[second]
    return now.total
