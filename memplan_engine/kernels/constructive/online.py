"""First fit in order of start, as an allocator would do it: a list of holes instead of all rectangles.

When buffers come by order of start, those alive with the next one are exactly those that have not ended. So
the holes between them can be kept from one buffer to the next, and the sweep of `place` becomes a look
through the holes, which are few. The offsets are the same.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.holes import PATIENCE, give_back, take
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

UNPLACED = -1


@kernel
def first_fit_by_start(
    order: Ints, start: Ints, end: Ints, size: Ints, alignment: Ints, limit: int, stop: Flags
) -> Ints:
    """Offsets in bytes, UNPLACED from where the arena would pass `limit` bytes or `stop` was raised: one
    flag, heeded after PATIENCE holes.

    `order` must be by start; the buffers have neither gaps nor fixed offsets.
    """
    n = len(order)
    offsets = np.full(n, UNPLACED, dtype=np.int64)
    by_end = np.argsort(end, kind="mergesort")
    holes = np.empty((n + 2, 2), dtype=np.int64)
    holes[0, 0], holes[0, 1], count = 0, np.iinfo(np.int64).max, 1
    ended, passed = 0, 0
    for buffer in order:
        passed += count
        if passed > PATIENCE and stop[0]:
            return offsets
        while ended < n and end[by_end[ended]] <= start[buffer]:
            gone = by_end[ended]
            if size[gone] > 0:
                count = give_back(holes, count, offsets[gone], offsets[gone] + size[gone])
            ended += 1
        if size[buffer] == 0:
            offsets[buffer] = 0
            continue
        hole, offset = -1, UNPLACED
        while offset == UNPLACED:
            hole += 1
            low, last = holes[hole, 0], holes[hole, 1] - size[buffer]
            # Only a hole that is large enough is worth the division.
            if low <= last and low + -low % alignment[buffer] <= last:
                offset = low + -low % alignment[buffer]
        if offset + size[buffer] > limit:
            return offsets
        offsets[buffer] = offset
        count = take(holes, count, hole, offset, offset + size[buffer])
    return offsets
