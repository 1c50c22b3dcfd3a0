"""Which rectangles are live together: an index over time, made once, that placing and taking out only mark.

Lifetimes never change, so the index is two flat arrays: the pieces by level (the power of two that their
length does not pass) and, within a level, by start, with a table of where each cell of that many sections
begins. Whatever meets a stretch of time starts in it or at most one cell before: on each level one run of
neighbours in memory, most of which really meet it. A look-up costs about as much as it finds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints, Shorts

ABSENT = -1
"""Value of `TimeIndex.low` for a piece that is not placed."""


class TimeIndex(NamedTuple):
    """The pieces that hold bytes, in *places*: by level, then start.

    The cell c of level l begins at place `cells[levels[l] + c]`. By place: `start` and `end` in sections,
    the `piece` there, the `owner` (buffer) of it, and the bytes `[low, high)` where it lies, low = ABSENT
    for nowhere. `place` is the place of each piece, ABSENT for one without bytes.
    """

    levels: Ints
    cells: Ints
    start: Shorts
    end: Shorts
    piece: Ints
    owner: Ints
    place: Ints
    low: Ints
    high: Ints


def make_time_index(first: Ints, start: Ints, end: Ints, low: Ints, high: Ints, sections: int) -> TimeIndex:
    """Index the pieces `[first[b], first[b + 1])` of each buffer b, of the sections `[start, end)` and the
    bytes `[low, high)` from its offset; nothing is placed yet. O(n log n) time, O(n) memory."""
    pieces = np.flatnonzero(low < high)
    length = (end - start)[pieces]
    level = np.ceil(np.log2(np.maximum(length, 1))).astype(np.int64)
    order = np.lexsort((start[pieces], level))
    piece, level = pieces[order], level[order]
    place = np.full(len(start), ABSENT, dtype=np.int64)
    place[piece] = np.arange(len(piece))
    levels, tables = [0], []
    for each in range(int(level.max(initial=0)) + 1):
        begin, finish = np.searchsorted(level, [each, each + 1])
        edges = np.arange((sections >> each) + 2) << each
        tables.append(begin + np.searchsorted(start[piece[begin:finish]], edges))
        levels.append(levels[-1] + len(edges))
    owner = np.repeat(np.arange(len(first) - 1), np.diff(first))
    return TimeIndex(
        np.array(levels),
        np.concatenate(tables),
        start[piece].astype(np.int32),
        end[piece].astype(np.int32),
        piece,
        owner[piece],
        place,
        np.full(len(piece), ABSENT, dtype=np.int64),
        np.full(len(piece), ABSENT, dtype=np.int64),
    )


@kernel(borrows=True)
def meeting(index: TimeIndex, start: int, end: int, places: Ints, count: int) -> int:
    """Append to `found[count:]` the places of the placed pieces that meet the sections `[start, end)`.

    Returns the new count. `places` needs room for one more than all that meet.
    """
    for level in range(len(index.levels) - 1):
        cells = index.cells[index.levels[level] : index.levels[level + 1]]
        begin = cells[max(0, start - (1 << level) + 1) >> level]
        finish = cells[((end - 1) >> level) + 1]
        for place in range(begin, finish):
            # No branch that nobody could predict: write in any case, count only what meets.
            places[count] = place
            count += (index.start[place] < end) & (start < index.end[place]) & (index.low[place] >= 0)
    return count
