"""The order × fit kernel for many buffers: the offsets of `place`, from the gaps that `time_tree` keeps."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.block_fit import best_fit, first_fit, is_short
from memplan_engine.kernels.constructive.gap_tree.gap_lists import NO_END
from memplan_engine.kernels.constructive.gap_tree.stretches import pick
from memplan_engine.kernels.constructive.gap_tree.time_tree import (
    TimeTree,
    add_rectangle,
    make_tree,
    narrow_to_time,
)
from memplan_engine.kernels.constructive.place import FIRST_FIT, FREE, TOP, UNPLACED, choose
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints


@kernel
def place_in_tree(
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
    cell: int,
    limit: int,
    stop: Flags,
) -> Ints:
    """As `place.place_in_order`, but for `cell`: the sections in a cell of the tree."""
    offsets = np.full(len(size), UNPLACED, dtype=np.int64)
    bottom = np.full(len(start), UNPLACED, dtype=np.int64)
    old, new = np.empty((2, 64), dtype=np.int64), np.empty((2, 64), dtype=np.int64)
    tree, pool = make_tree(start, end, cell)
    for buffer in order:
        if stop[0]:
            return offsets
        one, last, nbytes, unit = first[buffer], first[buffer + 1], size[buffer], alignment[buffer]
        offset = fixed[buffer]
        if offset != FREE:
            pass
        elif nbytes == 0:
            offset = _place_nothing(one, last, start, end, low, high, bottom, unit, fit)
        elif fit != TOP and _is_simple(tree, one, last, start, end, low, high, nbytes, unit):
            if fit == FIRST_FIT:
                offset = first_fit(tree, pool, start[one], end[one], nbytes, unit)
            else:
                offset = best_fit(tree, pool, start[one], end[one], nbytes, unit)
        else:
            old[0, 0], old[1, 0], count = 0, NO_END - nbytes, 1
            for piece in range(one, last):
                old, new, count = narrow_to_time(
                    tree, pool, old, new, count, start[piece], end[piece], low[piece], high[piece]
                )
            offset = pick(old, count, unit, fit)
        if offset > limit - nbytes:
            return offsets
        offsets[buffer] = offset
        for piece in range(one, last):
            if low[piece] < high[piece]:
                bottom[piece] = offset + low[piece]
                pool = add_rectangle(
                    tree, pool, start[piece], end[piece], offset + low[piece], offset + high[piece]
                )
    return offsets


@kernel
def _is_simple(
    tree: TimeTree,
    one: int,
    last: int,
    start: Ints,
    end: Ints,
    low: Ints,
    high: Ints,
    size: int,
    alignment: int,
) -> bool:
    """Whether a buffer is one short rectangle, and its alignment a power of two."""
    whole = last - one == 1 and low[one] == 0 and high[one] == size
    return whole and alignment & (alignment - 1) == 0 and is_short(tree, start[one], end[one])


@kernel
def _place_nothing(
    one: int,
    last: int,
    start: Ints,
    end: Ints,
    low: Ints,
    high: Ints,
    bottom: Ints,
    alignment: int,
    fit: int,
) -> int:
    """The offset of a buffer of no bytes: even where two others touch there is a hole for it, and no list of
    gaps knows of that. So all rectangles are looked at."""
    neighbours = np.empty(len(start), dtype=np.int64)
    count = 0
    for other in range(len(start)):
        for piece in range(one, last):
            if bottom[other] != UNPLACED and start[other] < end[piece] and start[piece] < end[other]:
                neighbours[count] = other
                count += 1
                break
    neighbours = neighbours[:count][np.argsort(bottom[neighbours[:count]])]
    top = bottom[neighbours] + high[neighbours] - low[neighbours]
    return choose(bottom[neighbours], top, bottom[:0], bottom[:0], 0, alignment, fit)
