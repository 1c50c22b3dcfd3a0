"""Linear scan over lifetimes with an active set and a free list, as PyTorch's JIT memory planner does it.

The free list knows only the bytes below the end of all that was ever taken: a hole at the end is not made
larger, and what fits nowhere is either exchanged for a buffer that ends later or put behind everything.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.holes import PATIENCE, give_back, take
from memplan_engine.kernels.constructive.trace import (
    Trace,
    begin_step,
    end_step,
    note,
    note_other,
    take_noted,
)
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

UNPLACED = -1
MOST = np.iinfo(np.int64).max

EMPTY, IN_RANGE, IN_EXCHANGE, AT_END = range(4)
"""Kinds of steps in a trace: no bytes (what it got is not noted), in a free range, in the place of one that
moves, at the end."""


@kernel
def scan(
    order: Ints,
    rank: Ints,
    start: Ints,
    end: Ints,
    size: Ints,
    alignment: Ints,
    base: int,
    best: bool,
    stop: Flags,
    trace: Trace | None = None,
) -> Ints:
    """Offsets in bytes at or above `base`; UNPLACED from where they would pass 2^63 or `stop` was raised.

    Parameters
    ----------
    order: the buffers by start.
    rank: each buffer's place in the order of ends; the active set is searched from the highest down.
    size: bytes, rounded up to the alignment as theirs are.
    best: take the smallest free range that is large enough, the lowest of equals; else the lowest.
    stop: one flag, heeded after PATIENCE holes.
    trace: where to note free ranges, as low, high, and the offset that the alignment leaves.
    """
    offsets, n = np.full(len(start), UNPLACED, dtype=np.int64), len(start)
    by_rank, active = _by_rank(rank), _none_active(n)
    holes, count = np.empty((2 * n + 2, 2), dtype=np.int64), 0
    top, ended, passed = base, 0, 0
    for buffer in order:
        passed += count
        if passed > PATIENCE and stop[0]:
            return offsets
        while ended < n and end[by_rank[ended]] <= start[buffer]:
            count = _end(by_rank[ended], ended, holes, count, active, offsets, size)
            ended += 1
        if trace is not None:
            begin_step(trace, buffer)
        if size[buffer] == 0:
            offsets[buffer] = base + -base % alignment[buffer]
            continue
        mover, above = UNPLACED, top
        hole = _find_hole(holes, count, size[buffer], alignment[buffer], best, trace)
        if hole >= 0:
            offsets[buffer] = low = holes[hole, 0] + -holes[hole, 0] % alignment[buffer]
            count = take(holes, count, hole, low, low + size[buffer])
        else:
            mover, low = _find_exchange(buffer, active, by_rank, rank, end, size, alignment, offsets)
            goes_up = mover if mover >= 0 else buffer
            above = top + -top % alignment[goes_up]
            if above < top or above > MOST - size[goes_up]:
                return offsets
            if mover >= 0:
                count = _exchange(holes, count, offsets[mover], size[mover], low, size[buffer])
                offsets[buffer] = low
            if above > top:
                count = give_back(holes, count, top, above)
            offsets[goes_up], top = above, above + size[goes_up]
        _set_active(active, rank[buffer], size[buffer])
        if trace is not None:
            _note_end(trace, offsets[buffer], hole, mover, above)
    return offsets


@kernel
def _by_rank(rank: Ints) -> Ints:
    by_rank = np.empty(len(rank), dtype=np.int64)
    by_rank[rank] = np.arange(len(rank))
    return by_rank


@kernel
def _none_active(n: int) -> Ints:
    leaves = 1
    while leaves < n:
        leaves *= 2
    return np.full(2 * leaves, UNPLACED, dtype=np.int64)


@kernel
def _end(buffer: int, rank: int, holes: Ints, count: int, active: Ints, offsets: Ints, size: Ints) -> int:
    """Give the bytes of the buffer `buffer` back; gives how many holes there are."""
    if size[buffer] == 0:
        return count
    _set_active(active, rank, UNPLACED)
    return give_back(holes, count, offsets[buffer], offsets[buffer] + size[buffer])


@kernel
def _exchange(holes: Ints, count: int, old: int, old_size: int, low: int, size: int) -> int:
    """Give the bytes at `old` back, and take `size` of them from `low` on; gives how many holes there are."""
    count = give_back(holes, count, old, old + old_size)
    at = int(np.searchsorted(holes[:count, 0], low, side="right")) - 1
    return take(holes, count, at, low, low + size)


@kernel
def _note_end(trace: Trace, offset: int, hole: int, mover: int, above: int) -> None:
    if hole >= 0:
        end_step(trace, offset, IN_RANGE)
    elif mover >= 0:
        note_other(trace, mover, above)
        end_step(trace, offset, IN_EXCHANGE)
    else:
        end_step(trace, offset, AT_END)


@kernel
def _find_hole(holes: Ints, count: int, size: int, alignment: int, best: bool, trace: Trace | None) -> int:
    chosen, tightest = -1, MOST
    for hole in range(count):
        low, high = holes[hole, 0], holes[hole, 1]
        if trace is not None:
            candidate = low + -low % alignment
            note(trace, low, high, candidate, 0, candidate <= high - size)
        if size <= high - low < tightest and low + -low % alignment <= high - size:
            if not best and trace is None:
                return hole
            # Nothing is tighter than 0: a traced first fit goes on only to note what it leaves.
            chosen, tightest = hole, high - low if best else 0
            if trace is not None:
                take_noted(trace)
    return chosen


@kernel
def _find_exchange(
    buffer: int,
    active: Ints,
    by_rank: Ints,
    rank: Ints,
    end: Ints,
    size: Ints,
    alignment: Ints,
    offsets: Ints,
) -> tuple[int, int]:
    """The active buffer with the latest end after that of `buffer` whose bytes would hold it, and the offset
    there; −1 when there is none."""
    last = len(by_rank)
    while True:
        place = _last_of_size(active, last, size[buffer])
        if place < 0 or end[by_rank[place]] <= end[buffer]:
            return -1, 0
        other = by_rank[place]
        low = offsets[other] + -offsets[other] % alignment[buffer]
        if low + size[buffer] <= offsets[other] + size[other]:
            return other, low
        last = place


@kernel
def _set_active(active: Ints, rank: int, size: int) -> None:
    """Write a leaf of the tree over ranks; each node holds the largest size below it."""
    node = rank + len(active) // 2
    active[node] = size
    node >>= 1
    while node >= 1:
        active[node] = max(active[2 * node], active[2 * node + 1])
        node >>= 1


@kernel
def _last_of_size(active: Ints, last: int, size: int) -> int:
    """The highest rank below `last` whose buffer is active with at least `size` bytes; −1 without one."""
    leaves = len(active) // 2
    left, right, node = leaves, leaves + last, 0
    while left < right:
        if right & 1 and active[right - 1] >= size:
            node = right - 1
            break
        # Of the nodes along the left edge the one that is met last lies furthest to the right.
        if left & 1 and active[left] >= size:
            node = left
        left, right = (left + 1) >> 1, right >> 1
    if node == 0:
        return -1
    while node < leaves:
        node = 2 * node + 1 if active[2 * node + 1] >= size else 2 * node
    return node - leaves
