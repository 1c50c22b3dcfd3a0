"""The rectangles that are already placed, kept so that those alive at a time come out by offset.

- *Long* rectangles, longer than `width` sections, stand in one run sorted by their low byte. Nearly every
  buffer meets most of them, so reading the run from end to end is the fastest way through.
- *Short* ones hang in cells of `width` sections by where they start: a short buffer looks at the few cells
  around it and sorts the little it finds there.
- A long buffer meets nearly all short ones, too: they stand in a second sorted run, into which the short
  rectangles placed since the last long buffer are merged only when a long one asks.

`cell_width` picks the width by counting what each would cost. A run is an int64 array of shape
(capacity, 4), a row a rectangle, sorted by low: start and end in sections, low and high in bytes. Rows keep
a rectangle's four numbers in one cache line for the scan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from memplan_engine.kernels.types import Ints

LONG, SHORT, PENDING, FOUND = 0, 1, 2, 3
"""Rows of `Placed.counts`."""


class Placed(NamedTuple):
    """The state: runs, cells, and the neighbours that the last look-up found (`low`, `high`)."""

    width: int
    counts: Ints
    long_run: Ints
    short_run: Ints
    pending: Ints
    cell_head: Ints
    cell_next: Ints
    low: Ints
    high: Ints
    found_low: Ints
    found_high: Ints


@njit(cache=True, nogil=True)
def make_placed(pieces: int, sections: int, width: int) -> Placed:
    """Nothing placed yet, with room for `pieces` rectangles over `sections` sections of time."""
    return Placed(
        width,
        np.zeros(4, dtype=np.int64),
        np.empty((pieces, 4), dtype=np.int64),
        np.empty((pieces, 4), dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
        np.full(sections // width + 1, -1, dtype=np.int64),
        np.full(pieces, -1, dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def add_rectangle(placed: Placed, piece: int, start: int, end: int, low: int, high: int) -> None:
    """Place `piece` over the sections `[start, end)` and the bytes `[low, high)`."""
    placed.low[piece], placed.high[piece] = low, high
    if end - start > placed.width:
        _insert_into_run(placed.long_run, placed.counts[LONG], start, end, low, high)
        placed.counts[LONG] += 1
        return
    cell = start // placed.width
    placed.cell_next[piece] = placed.cell_head[cell]
    placed.cell_head[cell] = piece
    placed.pending[placed.counts[PENDING]] = piece
    placed.counts[PENDING] += 1


@njit(cache=True, nogil=True)
def find_short(placed: Placed, starts: Ints, ends: Ints, start: int, end: int) -> None:
    """Append the short rectangles that meet the sections `[start, end)` to the found ones.

    In order of low if the asking rectangle is long, in no order if it is short.
    """
    if end - start > placed.width:
        _merge_pending(placed, starts, ends)
        _scan_run(placed, placed.short_run, placed.counts[SHORT], start, end)
        return
    found = placed.counts[FOUND]
    # A short rectangle is at most `width` long, so one that meets [start, end) starts after start − width.
    for cell in range(max(0, start - placed.width + 1) // placed.width, (end - 1) // placed.width + 1):
        piece = placed.cell_head[cell]
        while piece >= 0:
            if starts[piece] < end and start < ends[piece]:
                placed.found_low[found], placed.found_high[found] = placed.low[piece], placed.high[piece]
                found += 1
            piece = placed.cell_next[piece]
    placed.counts[FOUND] = found


@njit(cache=True, nogil=True)
def find_long(placed: Placed, start: int, end: int) -> None:
    """Append the long rectangles that meet the sections `[start, end)` to the found ones, by low."""
    _scan_run(placed, placed.long_run, placed.counts[LONG], start, end)


@njit(cache=True, nogil=True)
def sort_found(placed: Placed) -> None:
    """Sort the found rectangles by low: insertion for a few, quicksort for many."""
    low, high, count = placed.found_low, placed.found_high, placed.counts[FOUND]
    if count > 24:
        order = np.argsort(low[:count])
        low[:count] = low[:count][order]
        high[:count] = high[:count][order]
        return
    for i in range(1, count):
        moving_low, moving_high = low[i], high[i]
        place = i
        while place > 0 and low[place - 1] > moving_low:
            low[place], high[place] = low[place - 1], high[place - 1]
            place -= 1
        low[place], high[place] = moving_low, moving_high


@njit(cache=True, nogil=True)
def cell_width(first: Ints, last: Ints, sections: int) -> int:
    """The cell width, in sections, with the least estimated work for pieces `[first[p], last[p])`.

    Counts rectangles read: a short buffer reads the long run and the cells around it (which cost several
    times as much each, being scattered and sorted), a long one reads both runs.
    """
    pieces = len(first)
    length = np.sort(last - first)
    best_width, best_work = max(1, sections), np.inf
    width = 1
    while width < 2 * sections:
        short = np.searchsorted(length, width, side="right")
        long = pieces - short
        nearby = short * min(1.0, 2.5 * width / sections)
        work = short * (0.5 * long + 4.0 * nearby) + 1.5 * long * pieces
        if work < best_work:
            best_width, best_work = width, work
        width *= 2
    return best_width


@njit(cache=True, nogil=True)
def _insert_into_run(run: Ints, count: int, start: int, end: int, low: int, high: int) -> None:
    place = count
    while place > 0 and run[place - 1, 2] > low:
        run[place] = run[place - 1]
        place -= 1
    run[place, 0], run[place, 1], run[place, 2], run[place, 3] = start, end, low, high


@njit(cache=True, nogil=True)
def _scan_run(placed: Placed, run: Ints, count: int, start: int, end: int) -> None:
    found = placed.counts[FOUND]
    for row in range(count):
        if run[row, 0] < end and start < run[row, 1]:
            placed.found_low[found], placed.found_high[found] = run[row, 2], run[row, 3]
            found += 1
    placed.counts[FOUND] = found


@njit(cache=True, nogil=True)
def _merge_pending(placed: Placed, starts: Ints, ends: Ints) -> None:
    """Merge the pending short rectangles into their run, from the back so that no row is lost."""
    run, low, high = placed.short_run, placed.low, placed.high
    waiting = placed.pending[: placed.counts[PENDING]].copy()
    waiting = waiting[np.argsort(low[waiting])]
    source, other = placed.counts[SHORT] - 1, len(waiting) - 1
    target = source + len(waiting)
    while other >= 0:
        piece = waiting[other]
        if source >= 0 and run[source, 2] > low[piece]:
            run[target] = run[source]
            source -= 1
        else:
            run[target, 0], run[target, 1] = starts[piece], ends[piece]
            run[target, 2], run[target, 3] = low[piece], high[piece]
            other -= 1
        target -= 1
    placed.counts[SHORT] += len(waiting)
    placed.counts[PENDING] = 0
