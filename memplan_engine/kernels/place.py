"""The order × fit kernel: place buffers one after the other, each by a rule for choosing its hole.

Nearly every constructive planner in the literature is one order and one rule (Pisarchyk and Lee, XLA, TVM,
TFLite, AITemplate), so this kernel serves them all. `placed` finds a buffer's neighbours in time by order
of offset; `choose` sweeps upwards over them and applies the rule to the holes between.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from memplan_engine.kernels.placed import (
    FOUND,
    LONG,
    Placed,
    add_rectangle,
    find_long,
    find_short,
    make_placed,
    sort_found,
)
from memplan_engine.kernels.types import Flags, Ints

FIRST_FIT = 0
"""The lowest hole that is large enough."""
BEST_FIT = 1
"""The smallest hole that is large enough, the lowest of equals; above everything if there is none."""
TOP = 2
"""Above everything that is alive at the same time; holes are left empty."""

FREE = -1
UNPLACED = -1


@njit(cache=True, nogil=True)
def place_in_order(
    order: Ints,
    first: Ints,
    start: Ints,
    end: Ints,
    low: Ints,
    high: Ints,
    size: Ints,
    alignment: Ints,
    fixed: Ints,
    fit: int,
    width: int,
    limit: int,
    stop: Flags,
) -> Ints:
    """Place all buffers and return their offsets in bytes, UNPLACED for those that were not placed.

    Parameters
    ----------
    order: the buffers in the order in which they are placed; those with a fixed offset must come first.
    first, start, end, low, high: the pieces of each buffer (`pieces.Pieces`), in sections of time and bytes
        from the offset.
    size, alignment, fixed: per buffer; `fixed` is FREE or an offset in bytes.
    fit: FIRST_FIT, BEST_FIT or TOP.
    width: sections; what `cell_width` says.
    limit: give up as soon as the arena would pass this many bytes.
    stop: one flag, raised from outside to give up.
    """
    offsets = np.full(len(size), UNPLACED, dtype=np.int64)
    placed = make_placed(len(start), end.max() if len(end) else 0, width)
    for buffer in order:
        if stop[0]:
            return offsets
        offset = fixed[buffer]
        if offset == FREE:
            offset = _find_offset(placed, buffer, first, start, end, low, high, size, alignment, fit)
        if offset + size[buffer] > limit:
            return offsets
        offsets[buffer] = offset
        for piece in range(first[buffer], first[buffer + 1]):
            if low[piece] < high[piece]:
                add_rectangle(
                    placed, piece, start[piece], end[piece], offset + low[piece], offset + high[piece]
                )
    return offsets


@njit(cache=True, nogil=True)
def _find_offset(
    placed: Placed,
    buffer: int,
    first: Ints,
    start: Ints,
    end: Ints,
    low: Ints,
    high: Ints,
    size: Ints,
    alignment: Ints,
    fit: int,
) -> int:
    """The offset of `buffer` among its neighbours in time, by the rule `fit`."""
    one, last = first[buffer], first[buffer + 1]
    placed.counts[FOUND] = 0
    if last - one == 1 and low[one] == 0 and high[one] == size[buffer]:
        find_short(placed, start, end, start[one], end[one])
        if end[one] - start[one] <= placed.width:
            sort_found(placed)
        found = placed.counts[FOUND]
        found_low, found_high = placed.found_low[:found], placed.found_high[:found]
        run = placed.long_run[: placed.counts[LONG]]
        begin, finish = start[one], end[one]
    else:
        found_low, found_high = _gather(placed, one, last, start, end, low, high, size[buffer])
        run, begin, finish = placed.long_run[:0], 0, 0
    return choose(found_low, found_high, run, begin, finish, size[buffer], alignment[buffer], fit)


@njit(cache=True, nogil=True)
def _gather(
    placed: Placed, one: int, last: int, start: Ints, end: Ints, low: Ints, high: Ints, size: int
) -> tuple[Ints, Ints]:
    """The lows and highs of what the pieces `[one, last)` of one buffer of `size` bytes meet, by low.

    A piece that leaves out the bytes below its `low` or above its `high` may reach over a neighbour.
    Lifting the neighbour's low by what is left out above and lowering its high by what is left out below
    lets one sweep treat the buffer as if it filled its whole size. A neighbour that fits into what is left
    out is in nobody's way. One that meets several pieces is gathered once for each.
    """
    gathered = np.empty((64, 2), dtype=np.int64)
    count = 0
    for piece in range(one, last):
        placed.counts[FOUND] = 0
        find_short(placed, start, end, start[piece], end[piece])
        find_long(placed, start[piece], end[piece])
        found = placed.counts[FOUND]
        if count + found > len(gathered):
            larger = np.empty((2 * (count + found), 2), dtype=np.int64)
            larger[:count] = gathered[:count]
            gathered = larger
        for i in range(found):
            lifted, lowered = placed.found_low[i] + size - high[piece], placed.found_high[i] - low[piece]
            if lifted - size < lowered:
                gathered[count, 0], gathered[count, 1] = lifted, lowered
                count += 1
    by_low = np.argsort(gathered[:count, 0])
    return gathered[:count, 0][by_low], gathered[:count, 1][by_low]


@njit(cache=True, nogil=True)
def choose(
    found_low: Ints,
    found_high: Ints,
    run: Ints,
    start: int,
    end: int,
    size: int,
    alignment: int,
    fit: int,
) -> int:
    """The offset that `fit` gives to a buffer of `size` bytes among its neighbours in time.

    The neighbours are the found rectangles and those rows of `run` that meet the sections `[start, end)`,
    both by low. One sweep upwards over both; `reach` is the end of what it passed.
    """
    found, rows = len(found_low), len(run)
    reach, chosen, tightest = 0, -1, np.iinfo(np.int64).max
    i, j = 0, 0
    while True:
        while j < rows and (run[j, 0] >= end or run[j, 1] <= start):
            j += 1
        if i < found and (j == rows or found_low[i] <= run[j, 2]):
            next_low, next_high = found_low[i], found_high[i]
            i += 1
        elif j < rows:
            next_low, next_high = run[j, 2], run[j, 3]
            j += 1
        else:
            break
        hole = next_low - reach
        if hole >= size and fit != TOP:
            candidate = reach + -reach % alignment
            if candidate + size <= next_low:
                if fit == FIRST_FIT:
                    return candidate
                if hole < tightest:
                    chosen, tightest = candidate, hole
        reach = max(reach, next_high)
    return chosen if chosen >= 0 else reach + -reach % alignment
