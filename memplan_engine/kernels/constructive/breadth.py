"""The section with the largest load inside each lifetime."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints


@kernel
def busiest_section(first: Ints, last: Ints, live: Ints) -> Ints:
    """For each interval of sections `[first[i], last[i])` the one with the most live bytes, the earliest of
    equals. A tournament tree over `live` answers each in O(log sections)."""
    sections = len(live)
    winner = np.empty(2 * sections, dtype=np.int64)
    for section in range(sections):
        winner[sections + section] = section
    for node in range(sections - 1, 0, -1):
        winner[node] = _better(live, winner[2 * node], winner[2 * node + 1])
    busiest = np.empty(len(first), dtype=np.int64)
    for i in range(len(first)):
        left, right = first[i] + sections, last[i] + sections
        best = first[i]
        while left < right:
            if left & 1:
                best = _better(live, best, winner[left])
                left += 1
            if right & 1:
                right -= 1
                best = _better(live, best, winner[right])
            left >>= 1
            right >>= 1
        busiest[i] = best
    return busiest


@kernel
def _better(live: Ints, one: int, other: int) -> int:
    if live[one] > live[other] or (live[one] == live[other] and one < other):
        return one
    return other
