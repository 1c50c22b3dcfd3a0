"""Stretches: the offsets that a buffer may still have, as closed intervals from the bottom up.

A buffer's piece that takes the bytes `[below, above)` from its offset fits into a gap `[low, high)` at the
offsets from low − below to high − above. So one list of stretches serves all pieces of a buffer: each part of
time narrows it. Each function takes the stretches and a second array to write to and gives both back in
exchanged roles, with how many stretches there are.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.gap_lists import gap_onwards
from memplan_engine.kernels.constructive.place import FIRST_FIT, TOP
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints


@kernel
def with_room(array: Ints, needed: int) -> Ints:
    """`array`, or a larger one."""
    return array if needed <= array.shape[1] else np.empty((2, 2 * needed), dtype=np.int64)


@kernel
def narrow_to_gaps(
    old: Ints, new: Ints, count: int, gaps: Ints, below: int, above: int
) -> tuple[Ints, Ints, int]:
    """Leave the offsets at which the piece `[below, above)` lies in one of the gaps."""
    new = with_room(new, count + gaps.shape[1])
    begins, finishes = old[0, :count], old[1, :count]
    lows, highs = gaps[0], gaps[1]
    written, at = 0, 0
    leaps = len(lows) > 8 * count
    for i in range(count):
        if leaps:
            at = gap_onwards(highs, at, begins[i] + above - 1)
        while highs[at] - above < begins[i]:
            at += 1
        while True:
            begin, finish = max(begins[i], lows[at] - below), min(finishes[i], highs[at] - above)
            new[0, written], new[1, written] = begin, finish
            written += begin <= finish
            if highs[at] - above >= finishes[i]:
                break
            at += 1
    return new, old, written


@kernel
def narrow_around(
    old: Ints, new: Ints, count: int, low: Ints, high: Ints, below: int, above: int
) -> tuple[Ints, Ints, int]:
    """Leave the offsets at which the piece meets none of the ranges `[low, high)`, which come by low."""
    new = with_room(new, count + len(low))
    written, j, reach = 0, 0, 0
    for i in range(count):
        begin, finish = max(old[0, i], reach), old[1, i]
        while j < len(low) and low[j] - above < finish:
            if begin <= low[j] - above:
                new[0, written], new[1, written] = begin, low[j] - above
                written += 1
            reach = max(reach, high[j] - below)
            begin = max(begin, reach)
            j += 1
        if begin <= finish:
            new[0, written], new[1, written] = begin, finish
            written += 1
    return new, old, written


@kernel
def pick(stretches: Ints, count: int, alignment: int, fit: int) -> int:
    """The offset that `fit` gives; the last stretch, above everything, is the last resort."""
    chosen, tightest = -1, np.iinfo(np.int64).max
    if fit != TOP:
        for i in range(count - 1):
            begin, finish = stretches[0, i], stretches[1, i]
            if finish - begin < tightest:
                candidate = begin + -begin % alignment
                if candidate <= finish:
                    if fit == FIRST_FIT:
                        return candidate
                    chosen, tightest = candidate, finish - begin
    above = stretches[0, count - 1]
    return chosen if chosen >= 0 else above + -above % alignment
