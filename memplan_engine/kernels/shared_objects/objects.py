"""Shared objects by their lifetimes: every buffer to the one that it leaves idle least, or to the fullest.

Each object keeps the lifetimes of its buffers sorted, so whether it is free over a lifetime, and how long it
would have been idle, is one binary search. The lists grow by doubling, each in a block of one store.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace, begin_step, end_step, note, take_noted
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1
MOST = np.iinfo(np.int64).max


class Objects(NamedTuple):
    """`counts` holds how many objects there are and how much of the store is used. For each object: bytes,
    where its block begins, how many lifetimes are in it, how many it has room for, and the longest of them:
    most objects that are not free show it there, without a search."""

    counts: Ints
    size: Ints
    begin: Ints
    members: Ints
    room: Ints
    long_start: Ints
    long_end: Ints
    start: Ints
    end: Ints


@kernel
def make_objects(buffers: int) -> Objects:
    """No object yet, with room for `buffers` of them in any number of objects."""
    return Objects(
        np.zeros(2, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(buffers, dtype=np.int64),
        np.empty(4 * buffers, dtype=np.int64),
        np.empty(4 * buffers, dtype=np.int64),
    )


@kernel
def join(objects: Objects, chosen: int, start: int, end: int, size: int) -> int:
    """Give the object `chosen` one more lifetime `[start, end)` of `size` bytes, and grow it if need be; a
    new object when it is NOBODY. Gives the object."""
    if chosen == NOBODY:
        chosen = objects.counts[0]
        objects.counts[0] += 1
        objects.size[chosen], objects.members[chosen], objects.room[chosen] = size, 0, 2
        objects.begin[chosen] = objects.counts[1]
        objects.counts[1] += 2
        objects.long_start[chosen], objects.long_end[chosen] = start, end
    count, begin = objects.members[chosen], objects.begin[chosen]
    if count == objects.room[chosen]:
        to = objects.counts[1]
        objects.start[to : to + count] = objects.start[begin : begin + count]
        objects.end[to : to + count] = objects.end[begin : begin + count]
        objects.counts[1] += 2 * count
        objects.begin[chosen], objects.room[chosen] = to, 2 * count
        begin = to
    place = begin + count
    while place > begin and objects.start[place - 1] > start:
        objects.start[place], objects.end[place] = objects.start[place - 1], objects.end[place - 1]
        place -= 1
    objects.start[place], objects.end[place] = start, end
    objects.members[chosen] = count + 1
    objects.size[chosen] = max(objects.size[chosen], size)
    if end - start > objects.long_end[chosen] - objects.long_start[chosen]:
        objects.long_start[chosen], objects.long_end[chosen] = start, end
    return chosen


@kernel
def idle_steps(objects: Objects, chosen: int, start: int, end: int) -> int:
    """The steps between the lifetime `[start, end)` and the nearest one of an object; −1 when they meet."""
    if objects.long_start[chosen] < end and start < objects.long_end[chosen]:
        return -1
    begin = objects.begin[chosen]
    last = begin + objects.members[chosen]
    place, after = begin, last
    while place < after:
        middle = (place + after) // 2
        if objects.start[middle] < start:
            place = middle + 1
        else:
            after = middle
    idle = MOST
    if place < last:
        idle = objects.start[place] - end
    if place > begin:
        idle = min(idle, start - objects.end[place - 1])
    return max(idle, -1)


@kernel
def assign_by_distance(
    order: Ints,
    position: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    stop: Flags,
    trace: Trace | None = None,
) -> Ints:
    """The object of each buffer by Pisarchyk and Lee's improved greedy by size.

    Parameters
    ----------
    order: the buffers by `position`, then by rank: what comes first of equals.
    position: the last positional maximum that is not smaller than the buffer.
    trace: where to note objects, as number, bytes, idle steps (−1 when they meet), and 1 where it is free.

    Of one position the buffer that is nearest in time to a free object comes next, then the largest, then
    the first by rank. It takes the nearest object, of equals the largest, then the one made first. NOBODY
    for those that were left when `stop` was raised.
    """
    objects = make_objects(len(start))
    chosen = np.full(len(start), NOBODY, dtype=np.int64)
    # What is known to be no more than the steps to the nearest object: to look again costs more.
    least = np.empty(len(start), dtype=np.int64)
    first = 0
    while first < len(order):
        last = first
        while last < len(order) and position[order[last]] == position[order[first]]:
            least[order[last]] = _nearest(objects, start[order[last]], end[order[last]], None)[0]
            last += 1
        group = order[first:last]
        winner = _make_winners(group, least, size)
        for _ in range(len(group)):
            if stop[0]:
                return chosen
            row, best = _next(objects, winner, group, least, start, end, size)
            buffer = group[row]
            if trace is not None:
                begin_step(trace, buffer)
                _nearest(objects, start[buffer], end[buffer], trace)
            best = join(objects, best, start[buffer], end[buffer], size[buffer])
            chosen[buffer] = best
            if trace is not None:
                end_step(trace, best, 0)
            _play(winner, row, NOBODY, group, least, size)
            for other_row in range(len(group)):
                other = group[other_row]
                idle = max(start[other] - end[buffer], start[buffer] - end[other])
                comes_nearer = 0 <= idle < least[other] and chosen[other] == NOBODY
                if comes_nearer and idle_steps(objects, best, start[other], end[other]) >= 0:
                    least[other] = idle
                    _play(winner, other_row, other_row, group, least, size)
        first = last
    return chosen


@kernel
def _make_winners(group: Ints, least: Ints, size: Ints) -> Ints:
    """A tournament tree over the rows of `group`: the root, at 1, is the row that comes next."""
    leaves = len(group)
    winner = np.empty(2 * leaves, dtype=np.int64)
    winner[leaves:] = np.arange(leaves)
    for node in range(leaves - 1, 0, -1):
        winner[node] = _sooner(winner[2 * node], winner[2 * node + 1], group, least, size)
    return winner


@kernel
def _play(winner: Ints, row: int, now: int, group: Ints, least: Ints, size: Ints) -> None:
    """Let the games of `row` be played anew, by `now`: the row itself, or NOBODY."""
    node = row + len(group)
    winner[node] = now
    node >>= 1
    while node >= 1:
        winner[node] = _sooner(winner[2 * node], winner[2 * node + 1], group, least, size)
        node >>= 1


@kernel
def _sooner(one: int, other: int, group: Ints, least: Ints, size: Ints) -> int:
    """Of two rows the one nearer to an object, then the larger, then the first."""
    if one == NOBODY or other == NOBODY:
        return max(one, other)
    left, right = group[one], group[other]
    if least[left] != least[right]:
        return one if least[left] < least[right] else other
    if size[left] != size[right]:
        return one if size[left] > size[right] else other
    return min(one, other)


@kernel
def _next(
    objects: Objects, winner: Ints, group: Ints, least: Ints, start: Ints, end: Ints, size: Ints
) -> tuple[int, int]:
    """The row of `group` that comes next, and its nearest free object."""
    while True:
        row = winner[1]
        buffer = group[row]
        idle, best = _nearest(objects, start[buffer], end[buffer], None)
        if idle == least[buffer]:
            return row, best
        least[buffer] = idle
        _play(winner, row, row, group, least, size)


@kernel
def _nearest(objects: Objects, start: int, end: int, trace: Trace | None) -> tuple[int, int]:
    least, best = MOST, NOBODY
    for other in range(objects.counts[0]):
        idle = idle_steps(objects, other, start, end)
        if trace is not None:
            note(trace, other, objects.size[other], idle, idle >= 0, idle >= 0)
        if idle >= 0 and (
            idle < least or (idle == least and best != NOBODY and objects.size[other] > objects.size[best])
        ):
            least, best = idle, other
            if trace is not None:
                take_noted(trace)
    return least, best


@kernel
def assign_to_fullest(
    order: Ints, start: Ints, end: Ints, size: Ints, stop: Flags, trace: Trace | None = None
) -> Ints:
    """The partition of each buffer, as tract has them, when each, in `order`, joins the one with the largest
    sum of sizes among those in which nothing is live with it, the one made first of equals; a new one when
    there is none.

    NOBODY for those that were left when `stop` was raised. `trace` gets the partitions: number, bytes, the
    sum of sizes, and 1 where it is free.
    """
    partitions = make_objects(len(start))
    total = np.zeros(len(start), dtype=np.int64)
    chosen = np.full(len(start), NOBODY, dtype=np.int64)
    for buffer in order:
        if stop[0]:
            return chosen
        best, most = NOBODY, -1
        if trace is not None:
            begin_step(trace, buffer)
        for other in range(partitions.counts[0]):
            if trace is not None:
                free = idle_steps(partitions, other, start[buffer], end[buffer]) >= 0
                note(trace, other, partitions.size[other], total[other], free, free)
            if total[other] > most and idle_steps(partitions, other, start[buffer], end[buffer]) >= 0:
                best, most = other, total[other]
                if trace is not None:
                    take_noted(trace)
        chosen[buffer] = join(partitions, best, start[buffer], end[buffer], size[buffer])
        total[chosen[buffer]] += size[buffer]
        if trace is not None:
            end_step(trace, chosen[buffer], 0)
    return chosen
