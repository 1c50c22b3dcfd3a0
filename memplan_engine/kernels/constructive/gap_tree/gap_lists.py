"""Many lists of gaps, each the bytes that are still free somewhere in time, from the bottom up.

All lists share one pool of bytes, `pool[0]` the lows and `pool[1]` the highs, sorted and apart from each
other; the last gap of each list has no end. In `pool[2]` is room for the codes of their sizes (`size_codes`),
written only for lists that are searched by size. What is taken waits by the list, sorted, until there is
enough of it to be worth a pass over the gaps: taking a range out costs a fraction of moving what lies above.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.size_codes import Codes
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

NO_END = np.iinfo(np.int64).max
MOST_WAITING = 64


class GapLists(NamedTuple):
    """Where each list stands in the pool, how much room it has there, and what waits to be taken out."""

    first: Ints
    room: Ints
    counts: Ints
    used: Ints
    waiting: Ints
    wait_low: Ints
    wait_high: Ints


@kernel
def make_gap_lists(lists: int) -> tuple[GapLists, Ints]:
    """Lists that leave every byte free, and their pool."""
    room = 8
    pool = np.empty((3, 2 * room * lists), dtype=np.int64)
    pool[0, : room * lists] = 0
    pool[1, : room * lists] = NO_END
    empty = GapLists(
        np.arange(lists) * room,
        np.full(lists, room),
        np.ones(lists, dtype=np.int64),
        np.full(1, room * lists),
        np.zeros(lists, dtype=np.int64),
        np.empty((lists, MOST_WAITING), dtype=np.int64),
        np.empty((lists, MOST_WAITING), dtype=np.int64),
    )
    return empty, pool


@kernel
def gaps_of(lists: GapLists, pool: Ints, one: int) -> Ints:
    """The gaps of list `one`, lows and highs, without regard to what waits."""
    return pool[:2, lists.first[one] : lists.first[one] + lists.counts[one]]


@kernel
def codes_of(lists: GapLists, pool: Ints, one: int) -> Codes:
    """The codes of the gaps of list `one`, as `write_codes` left them."""
    first, count = lists.first[one], lists.counts[one]
    return pool[2, first : first + count].view(np.uint16)[:count]


@kernel
def gap_above(high: Ints, byte: int) -> int:
    """The first gap that reaches above `byte`; there always is one."""
    left, right = 0, len(high)
    while left < right:
        middle = (left + right) // 2
        if high[middle] <= byte:
            left = middle + 1
        else:
            right = middle
    return left


@kernel
def gap_onwards(high: Ints, left: int, byte: int) -> int:
    """The first gap from `left` on that reaches above `byte`: quick where it is near."""
    right, step = len(high), 1
    while left + step < right and high[left + step - 1] <= byte:
        left += step
        step *= 2
    return left + gap_above(high[left : min(right, left + step)], byte)


@kernel
def is_taken(lists: GapLists, pool: Ints, one: int, low: int, high: int) -> bool:
    """Whether nothing of `[low, high)` is left in list `one`."""
    gaps = gaps_of(lists, pool, one)
    return gaps[0, gap_above(gaps[1], low)] >= high


@kernel
def take_out(lists: GapLists, pool: Ints, one: int, low: int, high: int) -> Ints:
    """Take `[low, high)` out of list `one`, whether or not all of it was free; gives the pool."""
    if lists.waiting[one] == MOST_WAITING:
        pool = settle(lists, pool, one)
    wait_low, wait_high = lists.wait_low[one], lists.wait_high[one]
    place = lists.waiting[one]
    while place > 0 and wait_low[place - 1] > low:
        wait_low[place], wait_high[place] = wait_low[place - 1], wait_high[place - 1]
        place -= 1
    wait_low[place], wait_high[place] = low, high
    lists.waiting[one] += 1
    return pool


@kernel
def settle(lists: GapLists, pool: Ints, one: int) -> Ints:
    """Take out of list `one` what waits; gives the pool."""
    gaps, waiting = gaps_of(lists, pool, one), lists.waiting[one]
    count = lists.counts[one]
    changed, begin, end = _without(gaps, lists.wait_low[one, :waiting], lists.wait_high[one, :waiting])
    changed_count = changed.shape[1]
    total = begin + changed_count + count - end
    lists.waiting[one] = 0
    if total > lists.room[one]:
        pool = _move(lists, pool, one, 2 * total)
    gaps = pool[:2, lists.first[one] : lists.first[one] + lists.room[one]]
    _shift(gaps[0], end, count, begin + changed_count - end)
    _shift(gaps[1], end, count, begin + changed_count - end)
    _copy(changed[0], gaps[0, begin:])
    _copy(changed[1], gaps[1, begin:])
    lists.counts[one] = total
    return pool


@kernel
def _shift(values: Ints, first: int, last: int, by: int) -> None:
    # Counted from 0, so that no index can be negative and the compiler makes vector instructions of it.
    count = last - first
    if by > 0:
        moved = values[first : last + by]
        for i in range(count - 1, -1, -1):
            moved[i + by] = moved[i]
    elif by < 0:
        moved = values[first + by : last]
        for i in range(count):
            moved[i] = moved[i - by]


@kernel
def _copy(source: Ints, target: Ints) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@kernel
def _without(gaps: Ints, low: Ints, high: Ints) -> tuple[Ints, int, int]:
    """What is left of the gaps `[begin, end)`, the ones changed, without the ranges; and `begin`, `end`."""
    begin = gap_above(gaps[1], low[0])
    remaining = np.empty((2, gap_above(gaps[1], high.max()) + 1 - begin + len(low)), dtype=np.int64)
    count, at, i = 0, begin, 0
    while i < len(low):
        untouched = gap_onwards(gaps[1], at, low[i])
        _copy(gaps[0, at:untouched], remaining[0, count:])
        _copy(gaps[1, at:untouched], remaining[1, count:])
        count, at = count + untouched - at, untouched
        reach, top = gaps[0, at], gaps[1, at]
        while i < len(low) and low[i] < top:
            if low[i] > reach:
                remaining[0, count], remaining[1, count] = reach, low[i]
                count += 1
            reach = max(reach, high[i])
            if reach > top:
                break
            i += 1
        if reach < top:
            remaining[0, count], remaining[1, count] = reach, top
            count += 1
        at += 1
    return remaining[:, :count], begin, at


@kernel
def _move(lists: GapLists, pool: Ints, one: int, room: int) -> Ints:
    """Give list `one` new room at the end of the pool; gives the pool."""
    first, used, count = lists.first[one], lists.used[0], lists.counts[one]
    if used + room > pool.shape[1]:
        larger = np.empty((3, 2 * (used + room)), dtype=np.int64)
        larger[:, :used] = pool[:, :used]
        pool = larger
    pool[:, used : used + count] = pool[:, first : first + count]
    lists.first[one], lists.room[one] = used, room
    lists.used[0] += room
    return pool
