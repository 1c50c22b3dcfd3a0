"""Two sequences side by side: which elements of one stand for which of the other, in order."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1
PATIENCE = 64
"""How often, on average, an element may be looked at before two stretches are given up as too different."""
HEAD_START = 1_000_000
"""Looks that every stretch has, however short."""


@kernel
def longest_increasing(values: Ints) -> Flags:
    """Marks a longest strictly increasing subsequence of `values`: patience sorting, O(n log n)."""
    n = len(values)
    # The last element of the best subsequence of each length, and what comes before each element.
    tails, before = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    length = 0
    for i in range(n):
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            if values[tails[middle]] < values[i]:
                low = middle + 1
            else:
                high = middle
        before[i] = tails[low - 1] if low else NOBODY
        tails[low] = i
        length = max(length, low + 1)
    marked = np.zeros(n, dtype=np.bool_)
    at = tails[length - 1] if length else NOBODY
    while at != NOBODY:
        marked[at] = True
        at = before[at]
    return marked


@kernel(small=256)
def align_stretches(base: Ints, head: Ints, base_edges: Ints, head_edges: Ints, most_edits: int) -> Ints:
    """The place in `head` of each element of `base`, NOBODY for none; order is kept and equals meet equals.

    Stretch s is `base[base_edges[s]:base_edges[s + 1]]` beside the same of `head`; the stretches are aligned
    one by one: what is equal at both ends, then a longest common subsequence of the rest. One that needs more
    than `most_edits` insertions and deletions, or more than PATIENCE looks an element, keeps only its ends:
    the time is linear in the length, whatever the sequences hold.
    """
    place = np.full(len(base), NOBODY, dtype=np.int64)
    trace = np.empty((most_edits + 1) * (most_edits + 2) // 2, dtype=np.int64)
    for stretch in range(len(base_edges) - 1):
        i, end_i = base_edges[stretch], base_edges[stretch + 1]
        j, end_j = head_edges[stretch], head_edges[stretch + 1]
        while i < end_i and j < end_j and base[i] == head[j]:
            place[i] = j
            i, j = i + 1, j + 1
        while i < end_i and j < end_j and base[end_i - 1] == head[end_j - 1]:
            end_i, end_j = end_i - 1, end_j - 1
            place[end_i] = end_j
        if i < end_i and j < end_j:
            edits = _edit_script(base[i:end_i], head[j:end_j], most_edits, trace)
            if edits != NOBODY:
                _follow_back(base[i:end_i], head[j:end_j], edits, trace, place, i, j)
    return place


@kernel
def _edit_script(base: Ints, head: Ints, most_edits: int, trace: Ints) -> int:
    """How many insertions and deletions lead from `base` to `head`, NOBODY if too many.

    Myers' greedy algorithm: on diagonal k = i − j, `trace` keeps how far in `base` one comes with d edits;
    the d + 1 diagonals of d edits (k = −d, −d + 2, …, d) begin at d (d + 1) / 2.
    """
    n, m = len(base), len(head)
    left = PATIENCE * (n + m) + HEAD_START
    for edits in range(min(most_edits, n + m) + 1):
        row, above = edits * (edits + 1) // 2, (edits - 1) * edits // 2
        for at in range(edits + 1):
            k = 2 * at - edits
            i = _furthest(trace, above, edits, at)
            j = i - k
            begin = i
            while i < n and 0 <= j < m and base[i] == head[j]:
                i, j = i + 1, j + 1
            left -= i - begin + 1
            trace[row + at] = i
            if i >= n and j >= m:
                return edits
        if left < 0:
            return NOBODY
    return NOBODY


@kernel
def _deletes(trace: Ints, above: int, edits: int, at: int) -> bool:
    """Whether a path of `edits` edits enters its diagonal number `at` by a deletion, from the diagonal below,
    and not by an insertion, from the one above: whichever comes further in `base`."""
    return at > 0 and (at == edits or trace[above + at - 1] >= trace[above + at])


@kernel
def _furthest(trace: Ints, above: int, edits: int, at: int) -> int:
    """The place in `base` where a path of `edits` edits enters its diagonal number `at`."""
    if edits == 0:
        return 0
    if _deletes(trace, above, edits, at):
        return trace[above + at - 1] + 1
    return trace[above + at]


@kernel
def _follow_back(
    base: Ints, head: Ints, edits: int, trace: Ints, place: Ints, first_base: int, first_head: int
) -> None:
    """Write the pairs of the path that `_edit_script` found into `place`, from its end to its beginning."""
    i, j = len(base), len(head)
    for d in range(edits, -1, -1):
        above, at = (d - 1) * d // 2, (i - j + d) // 2
        enter = _furthest(trace, above, d, at)
        while i > enter:
            i, j = i - 1, j - 1
            place[first_base + i] = first_head + j
        if d > 0 and _deletes(trace, above, d, at):
            i -= 1
        elif d > 0:
            j -= 1
