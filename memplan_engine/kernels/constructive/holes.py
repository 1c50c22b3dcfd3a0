"""A list of holes: free ranges of bytes, sorted by their low byte, that never touch each other."""

from __future__ import annotations

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

PATIENCE = 2**28
"""Holes, counted again for each buffer, that a flag to stop is not heeded for: about a second."""


@kernel
def take(holes: Ints, count: int, hole: int, low: int, high: int) -> int:
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


@kernel
def give_back(holes: Ints, count: int, low: int, high: int) -> int:
    """Give the bytes `[low, high)` back, as one with the holes that they touch; gives how many there are."""
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


@kernel
def _drop(holes: Ints, count: int, hole: int) -> None:
    for row in range(hole, count - 1):
        holes[row, 0], holes[row, 1] = holes[row + 1, 0], holes[row + 1, 1]
