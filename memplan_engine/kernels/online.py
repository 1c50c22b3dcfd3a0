"""First fit in order of start, as an allocator would do it: a list of holes instead of all rectangles.

When buffers come by order of start, those alive with the next one are exactly those that have not ended. So
the holes between them can be kept from one buffer to the next, and the sweep of `place` becomes a look
through the holes, which are few. The offsets are the same.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from memplan_engine.kernels.types import Ints

UNPLACED = -1


@njit(cache=True, nogil=True)
def first_fit_by_start(order: Ints, start: Ints, end: Ints, size: Ints, alignment: Ints, limit: int) -> Ints:
    """Offsets in bytes, UNPLACED from where the arena would pass `limit` bytes.

    `order` must be by start; the buffers have neither gaps nor fixed offsets.
    """
    n = len(order)
    offsets = np.full(n, UNPLACED, dtype=np.int64)
    by_end = np.argsort(end, kind="mergesort")
    holes = np.empty((n + 2, 2), dtype=np.int64)
    holes[0, 0], holes[0, 1], count = 0, np.iinfo(np.int64).max, 1
    ended = 0
    for buffer in order:
        while ended < n and end[by_end[ended]] <= start[buffer]:
            gone = by_end[ended]
            if size[gone] > 0:
                count = _free(holes, count, offsets[gone], offsets[gone] + size[gone])
            ended += 1
        if size[buffer] == 0:
            offsets[buffer] = 0
            continue
        hole = 0
        offset = holes[0, 0] + -holes[0, 0] % alignment[buffer]
        while holes[hole, 1] - size[buffer] < offset:
            hole += 1
            offset = holes[hole, 0] + -holes[hole, 0] % alignment[buffer]
        if offset + size[buffer] > limit:
            return offsets
        offsets[buffer] = offset
        count = _take(holes, count, hole, offset, offset + size[buffer])
    return offsets


@njit(cache=True, nogil=True)
def _take(holes: Ints, count: int, hole: int, low: int, high: int) -> int:
    """Take the bytes `[low, high)` out of a hole; gives how many holes there are then."""
    before, after = low > holes[hole, 0], high < holes[hole, 1]
    if before and after:
        for row in range(count, hole, -1):
            holes[row, 0], holes[row, 1] = holes[row - 1, 0], holes[row - 1, 1]
        holes[hole, 1], holes[hole + 1, 0] = low, high
        return count + 1
    if before:
        holes[hole, 1] = low
    elif after:
        holes[hole, 0] = high
    else:
        _drop(holes, count, hole)
        return count - 1
    return count


@njit(cache=True, nogil=True)
def _free(holes: Ints, count: int, low: int, high: int) -> int:
    """Give the bytes `[low, high)` back, as one with the holes that they touch."""
    row, last = 0, count
    while row < last:
        middle = (row + last) // 2
        if holes[middle, 0] < low:
            row = middle + 1
        else:
            last = middle
    joins_below = row > 0 and holes[row - 1, 1] == low
    joins_above = row < count and holes[row, 0] == high
    if joins_below and joins_above:
        holes[row - 1, 1] = holes[row, 1]
        _drop(holes, count, row)
        return count - 1
    if joins_below:
        holes[row - 1, 1] = high
    elif joins_above:
        holes[row, 0] = low
    else:
        for other in range(count, row, -1):
            holes[other, 0], holes[other, 1] = holes[other - 1, 0], holes[other - 1, 1]
        holes[row, 0], holes[row, 1] = low, high
        return count + 1
    return count


@njit(cache=True, nogil=True)
def _drop(holes: Ints, count: int, hole: int) -> None:
    for row in range(hole, count - 1):
        holes[row, 0], holes[row, 1] = holes[row + 1, 0], holes[row + 1, 1]
