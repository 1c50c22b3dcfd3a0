"""The order × fit kernel: place buffers one after the other, each by a rule for choosing its hole.

Nearly every constructive planner in the literature is one order and one rule (Pisarchyk and Lee, XLA, TVM,
TFLite, AITemplate), so this kernel serves them all. `placed` finds a buffer's neighbours in time by order
of offset; `choose` sweeps upwards over them and applies the rule to the holes between.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.placed import (
    FOUND,
    FOUND_LONG,
    Placed,
    add_rectangle,
    find,
    make_placed,
)
from memplan_engine.kernels.constructive.trace import Trace, begin_step, end_step, note, take_noted
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

FIRST_FIT = 0
"""The lowest hole that is large enough."""
BEST_FIT = 1
"""The smallest hole that is large enough, the lowest of equals; above everything if there is none."""
TOP = 2
"""Above everything that is live at the same time; holes are left empty."""

FREE = -1
UNPLACED = -1
MOST = np.iinfo(np.int64).max


@kernel
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
    trace: Trace | None = None,
) -> Ints:
    """Place all buffers and return their offsets in bytes, UNPLACED for those that were not placed.

    Parameters
    ----------
    order: the buffers in the order in which they are placed; those with a fixed offset must come first.
    first, start, end, low, high: the pieces of each buffer (`problem.Pieces`), in sections of time and bytes
        from the offset.
    size, alignment, fixed: per buffer; `fixed` is FREE or an offset in bytes.
    fit: FIRST_FIT, BEST_FIT or TOP.
    width: sections; what `cell_width` says.
    limit: give up as soon as the arena would pass this many bytes.
    stop: one flag, raised from outside to give up.
    trace: where to note holes, as low, high (MOST for no end), and the offset that the alignment leaves.
    """
    offsets = np.full(len(size), UNPLACED, dtype=np.int64)
    placed = make_placed(len(start), end.max() if len(end) else 0, width)
    for buffer in order:
        if stop[0]:
            return offsets
        if trace is not None:
            begin_step(trace, buffer)
        offset = fixed[buffer]
        if offset == FREE:
            offset = _find_offset(placed, buffer, first, start, end, low, high, size, alignment, fit, trace)
        if offset + size[buffer] > limit:
            return offsets
        offsets[buffer] = offset
        if trace is not None:
            end_step(trace, offset, fixed[buffer] != FREE)
        for piece in range(first[buffer], first[buffer + 1]):
            if low[piece] < high[piece]:
                add_rectangle(placed, start, end, piece, offset + low[piece], offset + high[piece])
    return offsets


@kernel
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
    trace: Trace | None,
) -> int:
    """The offset of `buffer` among its neighbours in time, by the rule `fit`."""
    one, last = first[buffer], first[buffer + 1]
    if last - one == 1 and low[one] == 0 and high[one] == size[buffer]:
        find(placed, start, end, start[one], end[one])
        short, long = placed.counts[FOUND], placed.counts[FOUND_LONG]
        found_low, found_high = placed.found_low[:short], placed.found_high[:short]
        more_low, more_high = placed.found_long_low[:long], placed.found_long_high[:long]
    else:
        found_low, found_high = _gather(placed, one, last, start, end, low, high, size[buffer])
        more_low, more_high = placed.found_long_low[:0], placed.found_long_high[:0]
    return choose(found_low, found_high, more_low, more_high, size[buffer], alignment[buffer], fit, trace)


@kernel
def _gather(
    placed: Placed, one: int, last: int, start: Ints, end: Ints, low: Ints, high: Ints, size: int
) -> tuple[Ints, Ints]:
    """The lows and highs of what the pieces `[one, last)` of one buffer of `size` bytes meet, by low.

    A piece that leaves out the bytes below its `low` or above its `high` may reach over a neighbour.
    Lifting the neighbour's low by what is left out above and lowering its high by what is left out below
    lets one sweep treat the buffer as if it filled its whole size. A neighbour that meets several pieces is
    gathered once for each.
    """
    gathered = np.empty((64, 2), dtype=np.int64)
    count = 0
    for piece in range(one, last):
        find(placed, start, end, start[piece], end[piece])
        above, below = size - high[piece], low[piece]
        for found_low, found_high, number in (
            (placed.found_low, placed.found_high, placed.counts[FOUND]),
            (placed.found_long_low, placed.found_long_high, placed.counts[FOUND_LONG]),
        ):
            if count + number > len(gathered):
                larger = np.empty((2 * (count + number), 2), dtype=np.int64)
                larger[:count] = gathered[:count]
                gathered = larger
            for i in range(number):
                gathered[count, 0], gathered[count, 1] = found_low[i] + above, found_high[i] - below
                count += 1
    by_low = np.argsort(gathered[:count, 0])
    return gathered[:count, 0][by_low], gathered[:count, 1][by_low]


@kernel
def choose(
    found_low: Ints,
    found_high: Ints,
    more_low: Ints,
    more_high: Ints,
    size: int,
    alignment: int,
    fit: int,
    trace: Trace | None = None,
) -> int:
    """The offset that `fit` gives to a buffer of `size` bytes among its neighbours in time.

    The neighbours stand in two lists, both by low. One sweep upwards over both; `reach` is the end of what
    it passed.
    """
    found_count, more_count = len(found_low), len(more_low)
    reach, chosen, tightest = 0, -1, MOST
    i, j = 0, 0
    while i < found_count or j < more_count:
        if i < found_count and (j == more_count or found_low[i] <= more_low[j]):
            next_low, next_high = found_low[i], found_high[i]
            i += 1
        else:
            next_low, next_high = more_low[j], more_high[j]
            j += 1
        hole = next_low - reach
        if trace is not None and (hole > 0 or hole == size):
            _note_hole(trace, reach, next_low, size, alignment)
        # Only a hole that would be chosen is worth the division.
        if size <= hole < tightest and fit != TOP:
            candidate = reach + -reach % alignment
            if candidate + size <= next_low:
                if fit == FIRST_FIT and trace is None:
                    return candidate
                # Nothing is tighter than 0: a traced first fit goes on only to note what it leaves.
                chosen, tightest = candidate, 0 if fit == FIRST_FIT else hole
                if trace is not None:
                    take_noted(trace)
        reach = max(reach, next_high)
    if trace is not None:
        _note_hole(trace, reach, MOST, size, alignment)
        if chosen < 0:
            take_noted(trace)
    return chosen if chosen >= 0 else reach + -reach % alignment


@kernel
def _note_hole(trace: Trace, low: int, high: int, size: int, alignment: int) -> None:
    candidate = low + -low % alignment
    note(trace, low, high, candidate, 0, candidate <= high - size)
