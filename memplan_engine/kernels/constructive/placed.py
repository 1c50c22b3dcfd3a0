"""The rectangles that are already placed, kept so that those live at a time come out by offset.

- *Long* rectangles, longer than `width` sections, stand in one run sorted by their low byte. Nearly every
  buffer meets many of them, so reading the run from end to end is the fastest way through.
- *Short* ones hang in cells of `width` sections by where they start: a short buffer looks at the few cells
  around it and sorts the little it finds there.
- A long buffer meets many short ones, too: they stand in a second sorted run. Those placed last wait outside,
  unsorted, and are merged into it only when there are many.

`cell_width` picks the width by counting what each would cost. A run is read in two passes: one over the times
alone, which the compiler turns into vector instructions, and one over the rows that it lets through.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints, Shorts

LONG, SHORT, WAITING, FOUND, FOUND_LONG = 0, 1, 2, 3, 4
"""Rows of `Placed.counts`."""
MOST_WAITING = 256


class Run(NamedTuple):
    """Rectangles sorted by low: start and end in sections (int32), low and high in bytes (int64)."""

    start: Shorts
    end: Shorts
    low: Ints
    high: Ints


class Placed(NamedTuple):
    """The state, and what the last look-up found: short rectangles and long ones, each by low."""

    width: int
    counts: Ints
    long_run: Run
    short_run: Run
    waiting: Ints
    cell_head: Ints
    cell_next: Ints
    low: Ints
    high: Ints
    found_low: Ints
    found_high: Ints
    found_long_low: Ints
    found_long_high: Ints
    meets: Flags
    rows: Ints


@kernel
def make_placed(pieces: int, sections: int, width: int) -> Placed:
    """Nothing placed yet, with room for `pieces` rectangles over `sections` sections of time."""
    return Placed(
        width,
        np.zeros(5, dtype=np.int64),
        _make_run(pieces),
        _make_run(pieces),
        np.empty(MOST_WAITING, dtype=np.int64),
        np.full(sections // width + 1, -1, dtype=np.int64),
        np.full(pieces, -1, dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
        np.empty(pieces + 1, dtype=np.int64),
        np.empty(pieces, dtype=np.bool_),
        np.empty(pieces + 1, dtype=np.int64),
    )


@kernel
def _make_run(pieces: int) -> Run:
    return Run(
        np.empty(pieces, dtype=np.int32),
        np.empty(pieces, dtype=np.int32),
        np.empty(pieces, dtype=np.int64),
        np.empty(pieces, dtype=np.int64),
    )


@kernel
def add_rectangle(placed: Placed, starts: Ints, ends: Ints, piece: int, low: int, high: int) -> None:
    """Place `piece` of the sections `[starts[piece], ends[piece])` over the bytes `[low, high)`."""
    placed.low[piece], placed.high[piece] = low, high
    start, end = starts[piece], ends[piece]
    if end - start > placed.width:
        _insert_into_run(placed.long_run, placed.counts[LONG], start, end, low, high)
        placed.counts[LONG] += 1
        return
    cell = start // placed.width
    placed.cell_next[piece] = placed.cell_head[cell]
    placed.cell_head[cell] = piece
    if placed.counts[WAITING] == MOST_WAITING:
        _merge_waiting(placed, starts, ends)
    placed.waiting[placed.counts[WAITING]] = piece
    placed.counts[WAITING] += 1


@kernel
def find(placed: Placed, starts: Ints, ends: Ints, start: int, end: int) -> None:
    """Find the rectangles that meet the sections `[start, end)`: short and long ones, each by low."""
    placed.counts[FOUND_LONG] = _scan_run(
        placed.long_run,
        placed.counts[LONG],
        start,
        end,
        placed.found_long_low,
        placed.found_long_high,
        placed.meets,
        placed.rows,
    )
    if end - start > placed.width:
        _find_short_for_long(placed, starts, ends, start, end)
    else:
        _find_short_for_short(placed, starts, ends, start, end)


@kernel
def _find_short_for_long(placed: Placed, starts: Ints, ends: Ints, start: int, end: int) -> None:
    low, high = placed.found_low, placed.found_high
    sorted_count = _scan_run(
        placed.short_run, placed.counts[SHORT], start, end, low, high, placed.meets, placed.rows
    )
    waiting = np.empty((placed.counts[WAITING], 2), dtype=np.int64)
    count = 0
    for piece in placed.waiting[: placed.counts[WAITING]]:
        if starts[piece] < end and start < ends[piece]:
            waiting[count, 0], waiting[count, 1] = placed.low[piece], placed.high[piece]
            count += 1
    placed.counts[FOUND] = sorted_count + count
    order = np.argsort(waiting[:count, 0])
    target, source, other = sorted_count + count - 1, sorted_count - 1, count - 1
    while other >= 0:
        waits = order[other]
        if source >= 0 and low[source] > waiting[waits, 0]:
            low[target], high[target] = low[source], high[source]
            source -= 1
        else:
            low[target], high[target] = waiting[waits, 0], waiting[waits, 1]
            other -= 1
        target -= 1


@kernel
def _find_short_for_short(placed: Placed, starts: Ints, ends: Ints, start: int, end: int) -> None:
    count = 0
    # A short rectangle is at most `width` long, so one that meets [start, end) starts after start − width.
    for cell in range(max(0, start - placed.width + 1) // placed.width, (end - 1) // placed.width + 1):
        piece = placed.cell_head[cell]
        while piece >= 0:
            if starts[piece] < end and start < ends[piece]:
                placed.found_low[count], placed.found_high[count] = placed.low[piece], placed.high[piece]
                count += 1
            piece = placed.cell_next[piece]
    placed.counts[FOUND] = count
    _sort_by_low(placed.found_low, placed.found_high, count)


@kernel
def _sort_by_low(low: Ints, high: Ints, count: int) -> None:
    """Insertion for a few, quicksort for many."""
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


@kernel
def cell_width(first: Ints, last: Ints, sections: int) -> int:
    """The cell width, in sections, with the least estimated work for pieces `[first[p], last[p])`."""
    length = np.sort(last - first)
    best_width, best_work = max(1, sections), np.inf
    width = 1
    while width < 2 * sections:
        work = rows_read(length, sections, width)
        if work < best_work:
            best_width, best_work = width, work
        width *= 2
    return best_width


@kernel
def rows_read(length: Ints, sections: int, width: int) -> float:
    """An estimate of the rectangles read while all pieces are placed; `length` is theirs in sections, sorted.

    A short buffer reads the long run and the cells around it (which cost several times as much each, being
    scattered and sorted), a long one reads both runs.
    """
    pieces = len(length)
    short = np.searchsorted(length, width, side="right")
    long = pieces - short
    nearby = short * min(1.0, 2.5 * width / max(1, sections))
    return short * (0.5 * long + 4.0 * nearby) + 1.5 * long * pieces


@kernel
def _insert_into_run(run: Run, count: int, start: int, end: int, low: int, high: int) -> None:
    place = np.searchsorted(run.low[:count], low, side="right")
    for row in range(count, place, -1):
        run.start[row] = run.start[row - 1]
    for row in range(count, place, -1):
        run.end[row] = run.end[row - 1]
    for row in range(count, place, -1):
        run.low[row] = run.low[row - 1]
    for row in range(count, place, -1):
        run.high[row] = run.high[row - 1]
    run.start[place], run.end[place], run.low[place], run.high[place] = start, end, low, high


@kernel
def _scan_run(
    run: Run, count: int, start: int, end: int, low: Ints, high: Ints, meets: Flags, rows: Ints
) -> int:
    """Copy the bytes of the rows that meet the sections `[start, end)` to `low` and `high`; how many."""
    begin, finish = np.int32(start), np.int32(end)
    for row in range(count):
        meets[row] = (run.start[row] < finish) & (begin < run.end[row])
    number = 0
    for row in range(count):
        # No branch that nobody could predict: write in any case, count only what meets.
        rows[number] = row
        number += meets[row]
    for i in range(number):
        low[i], high[i] = run.low[rows[i]], run.high[rows[i]]
    return number


@kernel
def _merge_waiting(placed: Placed, starts: Ints, ends: Ints) -> None:
    """Merge the waiting rectangles into the short run, from the back so that no row is lost."""
    run, low = placed.short_run, placed.low
    waiting = placed.waiting[: placed.counts[WAITING]].copy()
    waiting = waiting[np.argsort(low[waiting])]
    source, other = placed.counts[SHORT] - 1, len(waiting) - 1
    target = source + len(waiting)
    while other >= 0:
        piece = waiting[other]
        if source >= 0 and run.low[source] > low[piece]:
            run.start[target], run.end[target] = run.start[source], run.end[source]
            run.low[target], run.high[target] = run.low[source], run.high[source]
            source -= 1
        else:
            run.start[target], run.end[target] = starts[piece], ends[piece]
            run.low[target], run.high[target] = low[piece], placed.high[piece]
            other -= 1
        target -= 1
    placed.counts[SHORT] += len(waiting)
    placed.counts[WAITING] = 0
