"""First and best fit among the holes of a short time: the gaps of one block and what lies in them.

What is there all through a block leaves some gaps; the few other rectangles that a short buffer meets lie
inside these, each in one. So only those gaps need a sweep, and the best of all others comes out of one pass
over the codes of their sizes. Alignments are powers of two here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.gap_lists import codes_of, gap_onwards, gaps_of
from memplan_engine.kernels.constructive.gap_tree.rows import rows_that_meet
from memplan_engine.kernels.constructive.gap_tree.size_codes import (
    CHUNK,
    NOTHING,
    Codes,
    next_code,
    size_code,
)
from memplan_engine.kernels.constructive.gap_tree.time_tree import CELLS, TimeTree
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

NO_HOLE = np.iinfo(np.int64).max
MOST_SHORT = 256
"""More short rectangles than these are not worth sorting."""
UNKNOWN = -1


class Met(NamedTuple):
    """What a short buffer meets inside the gaps of its block, by low; `gap` may be UNKNOWN."""

    low: Ints
    high: Ints
    gap: Ints


@kernel
def is_short(tree: TimeTree, start: int, end: int) -> bool:
    """Whether `[start, end)` lies in one block and meets few short rectangles at most."""
    if start // (tree.cell * CELLS) != (end - 1) // (tree.cell * CELLS):
        return False
    first, last = start // tree.cell, (end - 1) // tree.cell
    return last - first <= 1 or tree.short.counts[first : last + 1].sum() <= MOST_SHORT


@kernel
def meet_in_block(tree: TimeTree, start: int, end: int) -> Met:
    """The long rectangles and the waiting ones, merged with the short ones."""
    block = start // (tree.cell * CELLS)
    whole = 2 * tree.leaves + block
    waiting, rows = tree.lists.waiting[whole], tree.meeting
    low_of_waiting, high_of_waiting = tree.lists.wait_low[whole], tree.lists.wait_high[whole]
    many = rows_that_meet(tree.long, block, start, end, rows)
    short_low, short_high = _short_by_low(tree, start, end, rows[many:])
    total = many + waiting + len(short_low)
    met = Met(
        np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    )
    i, j, k = 0, 0, 0
    for at in range(total):
        low = NO_HOLE
        if i < many:
            low = tree.long.low[rows[i]]
        if (
            j < waiting
            and low_of_waiting[j] < low
            and (k == len(short_low) or low_of_waiting[j] < short_low[k])
        ):
            met.low[at], met.high[at], met.gap[at] = low_of_waiting[j], high_of_waiting[j], UNKNOWN
            j += 1
        elif k < len(short_low) and short_low[k] < low:
            met.low[at], met.high[at], met.gap[at] = short_low[k], short_high[k], UNKNOWN
            k += 1
        else:
            met.low[at], met.high[at], met.gap[at] = low, tree.long.high[rows[i]], tree.long.gap[rows[i]]
            i += 1
    return met


@kernel
def _short_by_low(tree: TimeTree, start: int, end: int, rows: Ints) -> tuple[Ints, Ints]:
    """The lows and highs of the short rectangles that meet `[start, end)`; `rows` is scratch.

    One that meets two cells may come twice.
    """
    many = 0
    for part in range(start // tree.cell, (end - 1) // tree.cell + 1):
        many += rows_that_meet(tree.short, part, start, end, rows[many:])
    low, high = tree.short.low[rows[:many]], tree.short.high[rows[:many]]
    if start // tree.cell == (end - 1) // tree.cell:
        return low, high
    by_low = np.argsort(low)
    return low[by_low], high[by_low]


@kernel
def first_fit(tree: TimeTree, pool: Ints, start: int, end: int, size: int, alignment: int) -> int:
    """The lowest offset."""
    met = meet_in_block(tree, start, end)
    gaps = gaps_of(tree.lists, pool, 2 * tree.leaves + start // (tree.cell * CELLS))
    mask, j = alignment - 1, 0
    for at in range(gaps.shape[1]):
        reach, top = gaps[0, at], gaps[1, at]
        while j < len(met.low) and met.low[j] < top:
            if reach + (-reach & mask) <= met.low[j] - size:
                return reach + (-reach & mask)
            reach = max(reach, met.high[j])
            j += 1
        if reach + (-reach & mask) <= top - size:
            return reach + (-reach & mask)
    return -1


@kernel
def best_fit(tree: TimeTree, pool: Ints, begin: int, finish: int, size: int, alignment: int) -> int:
    """The lowest offset in the smallest hole that is large enough, above everything if there is none."""
    met = meet_in_block(tree, begin, finish)
    whole = 2 * tree.leaves + begin // (tree.cell * CELLS)
    gaps, codes = gaps_of(tree.lists, pool, whole), codes_of(tree.lists, pool, whole)
    lows, highs, last = gaps[0], gaps[1], gaps.shape[1] - 1
    mask, above = alignment - 1, lows[last]
    chosen, tightest = -1, NO_HOLE
    saved, touched, gap, j = np.empty(len(met.low), dtype=np.uint16), 0, 0, 0
    # A hole of just this size: only below it can there be a better one.
    while j < len(met.low) and tightest > size:
        gap = met.gap[j] if met.gap[j] != UNKNOWN else gap_onwards(highs, gap, met.low[j])
        reach, top = lows[gap], highs[gap]
        while j < len(met.low) and met.low[j] < top:
            hole = met.low[j] - reach
            if size <= hole < tightest and (-reach & mask) + size <= hole:
                chosen, tightest = reach + (-reach & mask), hole
            reach = max(reach, met.high[j])
            j += 1
        if gap == last:
            above = reach
        elif size <= top - reach < tightest and (-reach & mask) + size <= top - reach:
            chosen, tightest = reach + (-reach & mask), top - reach
        # Nothing is left of it for those who look through all gaps.
        met.gap[touched], saved[touched], codes[gap] = gap, codes[gap], NOTHING
        touched += 1
    end = gap if tightest == size else last
    lowest, hole = _smallest_gap(gaps, codes[:end], size, mask, tightest)
    if hole < tightest or (hole == tightest < NO_HOLE and lowest < chosen):
        chosen = lowest
    for i in range(touched):
        codes[met.gap[i]] = saved[i]
    return chosen if chosen >= 0 else above + (-above & mask)


@kernel
def _smallest_gap(gaps: Ints, codes: Codes, size: int, mask: int, tightest: int) -> tuple[int, int]:
    """The offset in the smallest gap that has room for `size` bytes and is no larger than `tightest`, the
    lowest of equals, and how large the gap is; NO_HOLE if there is none."""
    lows, highs, most = gaps[0], gaps[1], size_code(tightest)
    floor, nearest = size_code(size), np.empty(-(-len(codes) // CHUNK), dtype=np.uint16)
    while True:
        code = next_code(codes, floor, nearest)
        if code > most:
            return -1, NO_HOLE
        best, least = -1, tightest
        for chunk in range(len(nearest)):
            if nearest[chunk] == code - floor:
                for i in range(chunk * CHUNK, min(len(codes), (chunk + 1) * CHUNK)):
                    hole = highs[i] - lows[i]
                    fits = codes[i] == code and (-lows[i] & mask) + size <= hole
                    if fits and (hole < least or (hole == least and best < 0)):
                        best, least = lows[i] + (-lows[i] & mask), hole
        if best >= 0:
            return best, least
        # The code leaves out the last bits of a size, and alignment takes some bytes, too.
        floor = np.uint16(code + 1)
