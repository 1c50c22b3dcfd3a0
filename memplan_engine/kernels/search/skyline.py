"""Lowest place first: the skyline heuristic, for problems that are full nearly everywhere.

Each buffer has a *low*: where it comes to lie when it is placed on top of what is placed already. Of the
buffers live together the one with the lowest low is placed first, of equals the earlier in an order;
what meets it is raised above it. So the skyline grows evenly, and little is left empty below it (the lowest
gap first, Burke, Kendall and Whitwell 2004, carried from stock cutting to buffers, whose time is fixed).

A buffer may be placed as soon as no neighbour in time comes before it; the others neither change that nor are
changed by it. So the result is that of always placing the first of all, but nobody has to know which that is:
from any buffer, go to the first of its neighbours until there is none.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.search.time_index import ABSENT, TimeIndex
from memplan_engine.kernels.types import Flags, Ints, Shorts

UNPLACED = -1
PLACED = 2**62
MOST_REMEMBERED = 64
"""Buffers on the way down to the lowest that are gone back to: a longer way is begun anew."""


@kernel
def place_by_skyline(
    order: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    alignment: Ints,
    times: TimeIndex,
    limit: int,
    stop: Flags,
) -> Ints:
    """Place plain buffers, over the sections `[start, end)`; returns their offsets in bytes.

    `order` decides between equals. `times`: the index of these buffers; its lows are written over. UNPLACED
    for some when one would end above `limit` bytes, or when `stop` is raised. Each placement looks two or
    three times at what the buffer meets in time.
    """
    offsets = np.full(len(order), UNPLACED, dtype=np.int64)
    rank = np.zeros(len(times.low), dtype=np.int32)
    times.low[:] = 0
    for i in range(len(order)):
        if times.place[order[i]] == ABSENT:
            offsets[order[i]] = 0
        else:
            rank[times.place[order[i]]] = i
    stack, depth = np.empty(MOST_REMEMBERED, dtype=np.int64), 0
    for buffer in order:
        while offsets[buffer] == UNPLACED:
            if depth == 0:
                stack[0], depth = buffer, 1
            above = stack[depth - 1]
            if offsets[above] != UNPLACED:
                depth -= 1
                continue
            place = _first_near(times, rank, times.place[above], start[above], end[above])
            chosen = times.owner[place]
            if chosen != above:
                depth = 0 if depth == len(stack) else depth
                stack[depth], depth = chosen, depth + 1
                continue
            low = times.low[place]
            if low > limit - size[chosen] or stop[0]:
                return offsets
            offsets[chosen], times.low[place], depth = low, PLACED, depth - 1
            _raise_near(times, alignment, start[chosen], end[chosen], low + size[chosen])
    return offsets


@kernel(inline=True)
def _run(times: TimeIndex, level: int, start: int, end: int) -> tuple[int, int]:
    """The places of a level between which everything lies that meets the sections `[start, end)`."""
    cells = times.levels[level]
    before = max(0, start - (1 << level) + 1) >> level
    return times.cells[cells + before], times.cells[cells + ((end - 1) >> level) + 1]


@kernel(inline=True)
def _first_near(times: TimeIndex, rank: Shorts, place: int, start: int, end: int) -> int:
    """The place of the lowest buffer that meets `[start, end)`, of equals the first; at least `place`."""
    first = place
    for level in range(len(times.levels) - 1):
        begin, finish = _run(times, level, start, end)
        for other in range(begin, finish):
            # The low first: most of what is near is placed already.
            if (
                times.low[other] <= times.low[first]
                and times.start[other] < end
                and start < times.end[other]
                and (times.low[other] < times.low[first] or rank[other] < rank[first])
            ):
                first = other
    return first


@kernel(inline=True)
def _raise_near(times: TimeIndex, alignment: Ints, start: int, end: int, top: int) -> None:
    """Raise what meets `[start, end)` to `top`, and then to its alignment."""
    for level in range(len(times.levels) - 1):
        begin, finish = _run(times, level, start, end)
        for other in range(begin, finish):
            if times.low[other] < top and times.start[other] < end and start < times.end[other]:
                times.low[other] = top + -top % alignment[times.owner[other]]
