"""Positional maxima: the largest k-th entry that any step has."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints


@kernel
def largest_kth(by_size: Ints, first: Ints, last: Ints, size: Ints, sections: int) -> Ints:
    """For k = 0, 1, …: the largest size that is the k-th largest, counted from 0, of those live together.

    Buffer b is live in the sections `[first[b], last[b])`; `by_size` has the buffers from the largest down.
    They are let in one by one: as soon as k + 1 are live together, the last one let in is the k-th maximum.
    A tree over the sections holds how many are live: O(n log n).
    """
    leaves = 1
    while leaves < sections:
        leaves *= 2
    # How many cover the whole of each node, and the most that are live together somewhere below it.
    whole, most = np.zeros(2 * leaves, dtype=np.int64), np.zeros(2 * leaves, dtype=np.int64)
    maxima, count = np.empty(len(by_size), dtype=np.int64), 0
    for buffer in by_size:
        left, right = first[buffer] + leaves, last[buffer] + leaves
        one, other = left, right - 1
        while left < right:
            if left & 1:
                whole[left] += 1
                most[left] += 1
                left += 1
            if right & 1:
                right -= 1
                whole[right] += 1
                most[right] += 1
            left >>= 1
            right >>= 1
        for leaf in (one, other):
            node = leaf >> 1
            while node >= 1:
                most[node] = whole[node] + max(most[2 * node], most[2 * node + 1])
                node >>= 1
        if most[1] > count:
            maxima[count] = size[buffer]
            count += 1
    return maxima[:count]
