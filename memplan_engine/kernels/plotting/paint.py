"""The largest value that covers each section of a line."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints


@kernel
def cover_max(first: Ints, last: Ints, value: Ints, sections: int) -> Ints:
    """The largest `value[i]` over the intervals `[first[i], last[i])` that cover each section; 0 where none.

    Paints the intervals from the largest value down. `next_free[s]` leads to the first section at or after
    `s` that has no paint yet, so each section is painted once: O(n log n) for the sort, then almost O(n).
    """
    highest = np.zeros(sections, dtype=np.int64)
    next_free = np.arange(sections + 1)
    for i in np.argsort(value)[::-1]:
        section = _find(next_free, first[i])
        while section < last[i]:
            highest[section] = value[i]
            next_free[section] = section + 1
            section = _find(next_free, section)
    return highest


@kernel
def _find(next_free: Ints, section: int) -> int:
    root = section
    while next_free[root] != root:
        root = next_free[root]
    while next_free[section] != root:
        next_free[section], section = root, next_free[section]
    return root
