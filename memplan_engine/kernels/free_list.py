"""Linear scan over lifetimes with an active set and a free list, as PyTorch's JIT memory planner does it.

The free list knows only the bytes below the end of all that was ever taken: a hole at the end is not made
larger, and what fits nowhere is either exchanged for a buffer that ends later or put behind everything.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from memplan_engine.kernels.holes import give_back, take
from memplan_engine.kernels.types import Ints

UNPLACED = -1
MOST = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def scan(
    order: Ints, rank: Ints, start: Ints, end: Ints, size: Ints, alignment: Ints, base: int, best: bool
) -> Ints:
    """Offsets in bytes at or above `base`; UNPLACED from where they would pass 2^63.

    Parameters
    ----------
    order: the buffers by start.
    rank: each buffer's place in the order of ends; the active set is searched from the highest down.
    size: bytes, rounded up to the alignment as theirs are.
    best: take the smallest free range that is large enough, the lowest of equals; else the lowest.
    """
    n = len(start)
    offsets = np.full(n, UNPLACED, dtype=np.int64)
    by_rank = np.empty(n, dtype=np.int64)
    by_rank[rank] = np.arange(n)
    holes, count = np.empty((2 * n + 2, 2), dtype=np.int64), 0
    leaves = 1
    while leaves < n:
        leaves *= 2
    active = np.full(2 * leaves, UNPLACED, dtype=np.int64)
    top, ended = base, 0
    for buffer in order:
        while ended < n and end[by_rank[ended]] <= start[buffer]:
            gone = by_rank[ended]
            ended += 1
            if size[gone] > 0:
                count = give_back(holes, count, offsets[gone], offsets[gone] + size[gone])
                _set_active(active, rank[gone], UNPLACED)
        if size[buffer] == 0:
            offsets[buffer] = base + -base % alignment[buffer]
            continue
        hole = _find_hole(holes, count, size[buffer], alignment[buffer], best)
        if hole >= 0:
            low = holes[hole, 0] + -holes[hole, 0] % alignment[buffer]
            offsets[buffer] = low
            count = take(holes, count, hole, low, low + size[buffer])
        else:
            mover, low = _find_exchange(buffer, active, by_rank, rank, end, size, alignment, offsets)
            goes_up = mover if mover >= 0 else buffer
            above = top + -top % alignment[goes_up]
            if above < top or above > MOST - size[goes_up]:
                return offsets
            if mover >= 0:
                old = offsets[mover]
                count = give_back(holes, count, old, old + size[mover])
                at = int(np.searchsorted(holes[:count, 0], low, side="right")) - 1
                count = take(holes, count, at, low, low + size[buffer])
                offsets[buffer] = low
            if above > top:
                count = give_back(holes, count, top, above)
            offsets[goes_up] = above
            top = above + size[goes_up]
        _set_active(active, rank[buffer], size[buffer])
    return offsets


@njit(cache=True, nogil=True)
def _find_hole(holes: Ints, count: int, size: int, alignment: int, best: bool) -> int:
    chosen, tightest = -1, MOST
    for hole in range(count):
        low, high = holes[hole, 0], holes[hole, 1]
        if size <= high - low < tightest and low + -low % alignment <= high - size:
            chosen, tightest = hole, high - low
            if not best:
                break
    return chosen


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _set_active(active: Ints, rank: int, size: int) -> None:
    """Write a leaf of the tree over ranks; each node holds the largest size below it."""
    node = rank + len(active) // 2
    active[node] = size
    node >>= 1
    while node >= 1:
        active[node] = max(active[2 * node], active[2 * node + 1])
        node >>= 1


@njit(cache=True, nogil=True)
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
