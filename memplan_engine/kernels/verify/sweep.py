"""The validator's own kernel: rectangles that overlap, by a sweep over time.

A segment tree over the byte axis holds who owns each range of bytes at the current step. `owner[node]` is
the rectangle that owns the node's whole range, `taken[node]` says whether anything in it is owned. The
strategies use none of this.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1


@kernel
def find_collisions(events: Ints, low: Ints, high: Ints, ranges: int) -> Ints:
    """For each rectangle one that it overlaps and that was there before it, or NOBODY.

    Parameters
    ----------
    events: rectangles in order of time, `r` when r begins and `−r − 1` when it ends, ends before begins.
    low, high: the half-open range of bytes of each, as indices of `ranges` elementary ranges.

    A rectangle that collides is left out of the sweep: what meets only it is not reported.
    """
    collides = np.full(len(low), NOBODY, dtype=np.int64)
    owner = np.full(2 * ranges, NOBODY, dtype=np.int64)
    occupied = np.zeros(2 * ranges, dtype=np.bool_)
    for event in events:
        if event < 0:
            leaving = -event - 1
            if collides[leaving] == NOBODY:
                _claim(owner, occupied, low[leaving] + ranges, high[leaving] + ranges, NOBODY)
        else:
            other = _owner_within(owner, occupied, low[event] + ranges, high[event] + ranges)
            collides[event] = other
            if other == NOBODY:
                _claim(owner, occupied, low[event] + ranges, high[event] + ranges, event)
    return collides


@kernel
def _owner_within(owner: Ints, occupied: Flags, left: int, right: int) -> int:
    """Somebody who owns a part of the leaves `[left, right)`."""
    for leaf in (left, right - 1):
        node = leaf
        while node >= 1:
            if owner[node] != NOBODY:
                return owner[node]
            node >>= 1
    while left < right:
        if left & 1:
            if occupied[left]:
                return _any_owner(owner, occupied, left)
            left += 1
        if right & 1:
            right -= 1
            if occupied[right]:
                return _any_owner(owner, occupied, right)
        left >>= 1
        right >>= 1
    return NOBODY


@kernel
def _any_owner(owner: Ints, occupied: Flags, node: int) -> int:
    while owner[node] == NOBODY:
        node = 2 * node if occupied[2 * node] else 2 * node + 1
    return owner[node]


@kernel
def _claim(owner: Ints, occupied: Flags, left: int, right: int, claimant: int) -> None:
    first, last = left, right - 1
    while left < right:
        if left & 1:
            owner[left], occupied[left] = claimant, claimant != NOBODY
            left += 1
        if right & 1:
            right -= 1
            owner[right], occupied[right] = claimant, claimant != NOBODY
        left >>= 1
        right >>= 1
    for leaf in (first, last):
        node = leaf >> 1
        while node >= 1:
            occupied[node] = owner[node] != NOBODY or occupied[2 * node] or occupied[2 * node + 1]
            node >>= 1
