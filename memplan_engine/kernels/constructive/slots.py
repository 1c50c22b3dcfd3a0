"""Buffers as they come alive, each in a slot that one of about its size has left: quick for any number.

No holes are kept, so that each buffer costs the same however many are alive. Slots have one of four sizes for
each power of two, and are used again and again, but never cut and never joined.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

UNPLACED = -1
NONE = -1
SIZES = 4 * 64
"""More than the sizes that slots can have."""
LARGER = 4
"""How many larger sizes a buffer may take a slot of before it gets a new one: up to twice its own."""
MOST = np.iinfo(np.int64).max


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
            gone = by_end[ended]
            if size[gone] > 0:
                before[gone], last[slot_size[gone]] = last[slot_size[gone]], gone
            ended += 1
        if size[buffer] == 0:
            offsets[buffer] = 0
            continue
        own, nbytes = _slot(size[buffer])
        for wanted in range(own, own + LARGER):
            left = last[wanted]
            if left != NONE and offsets[left] % alignment[buffer] == 0:
                offsets[buffer], slot_size[buffer], last[wanted] = offsets[left], wanted, before[left]
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
