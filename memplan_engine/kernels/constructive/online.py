"""Buffers as they become live, as an allocator would place them: in the lowest hole, or in slots.

When buffers come by order of start, those live with the next one are exactly those that have not ended. So
the holes between them can be kept from one buffer to the next, and the sweep of `place` becomes a look
through the holes, which are few. The offsets are the same.

Slots keep no holes, so that each buffer costs the same however many are live: quick for any number. They
have one of four sizes for each power of two, and are used again and again, but never cut and never joined.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.holes import PATIENCE, give_back, take
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

UNPLACED = -1
NONE = -1
SIZES = 4 * 64
"""More than the sizes that slots can have."""
LARGER = 4
"""How many larger sizes a buffer may take a slot of before it gets a new one: up to twice its own."""
MOST = np.iinfo(np.int64).max


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
    holes[0, 0], holes[0, 1], count = 0, MOST, 1
    ended, passed = 0, 0
    for buffer in order:
        passed += count
        if passed > PATIENCE and stop[0]:
            return offsets
        while ended < n and end[by_end[ended]] <= start[buffer]:
            freed = by_end[ended]
            if size[freed] > 0:
                count = give_back(holes, count, offsets[freed], offsets[freed] + size[freed])
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


@kernel
def place_in_slots(order: Ints, start: Ints, end: Ints, size: Ints, alignment: Ints) -> Ints:
    """Offsets in bytes, UNPLACED from where a slot would pass 2^63.

    `order` must be by start; the buffers have neither gaps nor fixed offsets.
    """
    n = len(order)
    offsets, slot_size = np.full(n, UNPLACED, dtype=np.int64), np.empty(n, dtype=np.int64)
    # The slots that are free, of each size: the buffer that left it last, and for each who left one before.
    last, before = np.full(SIZES + LARGER, NONE, dtype=np.int64), np.empty(n, dtype=np.int64)
    by_end = np.argsort(end, kind="mergesort")
    top, ended = 0, 0
    for buffer in order:
        while ended < n and end[by_end[ended]] <= start[buffer]:
            freed = by_end[ended]
            if size[freed] > 0:
                before[freed], last[slot_size[freed]] = last[slot_size[freed]], freed
            ended += 1
        if size[buffer] == 0:
            offsets[buffer] = 0
            continue
        own, nbytes = _slot(size[buffer])
        for slot in range(own, own + LARGER):
            reused = last[slot]
            if reused != NONE and offsets[reused] % alignment[buffer] == 0:
                offsets[buffer], slot_size[buffer], last[slot] = offsets[reused], slot, before[reused]
                break
        else:
            padding = -top % alignment[buffer]
            if not 0 < nbytes <= MOST - padding - top:
                return offsets
            offsets[buffer], slot_size[buffer] = top + padding, own
            top += padding + nbytes
    return offsets


@kernel
def _slot(size: int) -> tuple[int, int]:
    """The number of the smallest slot size that holds `size` bytes, and its bytes; what passes 2^63 has none
    above 0."""
    power = 0
    while size - 1 >> power >= 8:
        power += 1
    quarters = (size - 1 >> power) + 1
    return 4 * power + quarters, quarters << power
