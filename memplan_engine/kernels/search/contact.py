"""Order × contact fit: each buffer goes where the most of its bottom and top touches what is placed already.

A buffer that touches its neighbours all its life leaves no sliver beside it. Best fit looks at the height of
a hole alone, which is not enough where thousands of lifetimes of any length overlap (the touching perimeter
of Lodi, Martello and Vigo 1999, carried from bins to buffers, whose time is fixed). Contact is counted in
sections of time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.search.radix import Sorter, sort_pairs
from memplan_engine.kernels.search.time_index import ABSENT, TimeIndex, meeting
from memplan_engine.kernels.types import Flags, Ints

UNPLACED = -1


class ContactParams(NamedTuple):
    """What counts in a choice of place, beside contact with neighbours: all of a life's is 1."""

    ceiling: float = 0.5
    """Touching the ceiling: the floor is as good as a neighbour, the ceiling better than nothing."""
    tightness: float = 0.1
    """A hole of just the right height."""


@kernel
def place_by_contact(
    order: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    alignment: Ints,
    times: TimeIndex,
    ceiling: int,
    stop: Flags,
    neighbours: Ints,
    by_low: Sorter,
    params: ContactParams,
) -> Ints:
    """Place plain buffers, over the sections `[start, end)`, in `order`; returns their offsets in bytes.

    Below `ceiling` bytes each goes where it has most contact; what has no room there lies at the lowest
    offset above. `times`: the index of these buffers, in which nothing is placed yet. Raising `stop` ends
    with UNPLACED for the rest. `neighbours` and `by_low` are scratch, each with room for all buffers and one
    more. A buffer costs what it meets in time.
    """
    offsets = np.full(len(size), UNPLACED, dtype=np.int64)
    for buffer in order:
        if stop[0]:
            return offsets
        place = times.place[buffer]
        if place == ABSENT:
            offsets[buffer] = 0
            continue
        count = meeting(times, start[buffer], end[buffer], neighbours, 0)
        for i in range(count):
            by_low.key[i], by_low.value[i] = times.low[neighbours[i]], neighbours[i]
        sort_pairs(by_low, count)
        offset = _best_contact(
            times,
            by_low,
            count,
            start[buffer],
            end[buffer],
            size[buffer],
            alignment[buffer],
            ceiling,
            params,
        )
        offsets[buffer] = offset
        times.low[place], times.high[place] = offset, offset + size[buffer]
    return offsets


@kernel(borrows=True)
def _best_contact(
    times: TimeIndex,
    by_low: Sorter,
    count: int,
    start: int,
    end: int,
    size: int,
    alignment: int,
    ceiling: int,
    params: ContactParams,
) -> int:
    """The offset with the most contact below `ceiling`, or else the lowest above; tried are the bottom and
    the top of each hole, the lowest first. `below`: how much of the life touches what ends at `reach`."""
    best, chosen, reach, below = -1.0, UNPLACED, 0, 1.0
    for i in range(count + 1):
        until = min(by_low.key[i], ceiling) if i < count else ceiling
        hole = until - reach
        if hole >= size:
            above = _contact_above(times, by_low, i, count, start, end, until, ceiling)
            above += params.ceiling if until == ceiling else 0.0
            tight = params.tightness * size / hole
            offset = reach + -reach % alignment
            touching = below if offset == reach else 0.0
            if offset + size <= until and touching + tight + (above if hole == size else 0.0) > best:
                best, chosen = touching + tight + (above if hole == size else 0.0), offset
            hanging = until - size - (until - size) % alignment
            touching = above if hanging + size == until else 0.0
            if hanging >= reach and touching + tight > best:
                best, chosen = touching + tight, hanging
        if i == count or (chosen != UNPLACED and by_low.key[i] >= ceiling):
            break
        lowest = reach + -reach % alignment
        if chosen == UNPLACED and lowest > ceiling - size and by_low.key[i] - lowest >= size:
            break
        other = by_low.value[i]
        if times.high[other] > reach:
            reach, below = times.high[other], 0.0
        if times.high[other] == reach:
            below += _shared(times, other, start, end)
    return chosen if chosen != UNPLACED else reach + -reach % alignment


@kernel(borrows=True)
def _contact_above(
    times: TimeIndex, by_low: Sorter, i: int, count: int, start: int, end: int, until: int, ceiling: int
) -> float:
    """How much of the life `[start, end)` touches what begins at the byte `until`."""
    above = 0.0
    while i < count and by_low.key[i] == until and until < ceiling:
        above += _shared(times, by_low.value[i], start, end)
        i += 1
    return above


@kernel(borrows=True)
def _shared(times: TimeIndex, place: int, start: int, end: int) -> float:
    """The share of the sections `[start, end)` in which the piece at `place` is live."""
    return (min(end, times.end[place]) - max(start, times.start[place])) / (end - start)
