"""Placed rectangles by parts of the time axis, in each part by their low byte.

A look-up reads a part in two passes: one over the times alone, which the compiler turns into vector
instructions, and one over the rows that it lets through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints, Shorts


class Rows(NamedTuple):
    """Part p has the rows `first[p] … first[p] + counts[p] − 1`: start and end in sections, low and high in
    bytes, and the index of the gap they lie in (kept by whoever knows gaps)."""

    first: Ints
    counts: Ints
    start: Shorts
    end: Shorts
    low: Ints
    high: Ints
    gap: Shorts
    meets: Flags


@kernel
def make_rows(counts: Ints) -> Rows:
    """No rows yet, with room for `counts[p]` in part p."""
    first = np.zeros(len(counts) + 1, dtype=np.int64)
    first[1:] = np.cumsum(counts)
    total = first[-1]
    return Rows(
        first,
        np.zeros(len(counts), dtype=np.int64),
        np.empty(total, dtype=np.int32),
        np.empty(total, dtype=np.int32),
        np.empty(total, dtype=np.int64),
        np.empty(total, dtype=np.int64),
        np.empty(total, dtype=np.int32),
        np.empty(counts.max() + 1, dtype=np.bool_),
    )


@kernel
def add_row(rows: Rows, part: int, start: int, end: int, low: int, high: int, gap: int) -> None:
    """Insert one rectangle where its low byte belongs."""
    first = rows.first[part]
    last = first + rows.counts[part]
    place = first + np.searchsorted(rows.low[first:last], low, side="right")
    _shift_up(rows.start[place : last + 1])
    _shift_up(rows.end[place : last + 1])
    _shift_up(rows.low[place : last + 1])
    _shift_up(rows.high[place : last + 1])
    _shift_up(rows.gap[place : last + 1])
    rows.start[place], rows.end[place], rows.low[place], rows.high[place] = start, end, low, high
    rows.gap[place] = gap
    rows.counts[part] += 1


@kernel
def _shift_up(values: NDArray[np.signedinteger[Any]]) -> None:
    """Move all but the last one place up. Counting down to 1, no index can be negative: only then does the
    compiler make vector instructions of it."""
    for i in range(len(values) - 1, 0, -1):
        values[i] = values[i - 1]


@kernel
def rows_that_meet(rows: Rows, part: int, start: int, end: int, meeting: Ints) -> int:
    """The rows of the part that meet the sections `[start, end)`, to `meeting`, by low; how many."""
    first, count = rows.first[part], rows.counts[part]
    starts, ends = rows.start[first : first + count], rows.end[first : first + count]
    begin, finish, meets = np.int32(start), np.int32(end), rows.meets
    for i in range(count):
        meets[i] = (starts[i] < finish) & (begin < ends[i])
    many = 0
    for i in range(count):
        # No branch that nobody could predict: write in any case, count only what meets.
        meeting[many] = first + i
        many += meets[i]
    return many
