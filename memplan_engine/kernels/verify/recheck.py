"""The validator's own solver: can a few buffers be placed below a limit? No strategy uses any of this.

It never tries an offset. Each buffer has a lowest and a highest offset that is not excluded yet; of each
pair that meets in time, one must lie below the other. `_propagate` narrows the offsets until nothing changes:
along pairs whose order is known (longest paths), and in each clique, whose buffers are live at one step and
so have to be stacked. Then the order of one open pair is assumed; when that fails, the other order holds.
Which pair: the one with the least room that has been part of most failures, as in the schedulers of
D. Grimes, E. Hebrard and A. Malapert, "Closing the Open Shop: Contradicting Conventional Wisdom" (CP 2009).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

Orders = NDArray[np.int8]
Weights = NDArray[np.float64]

OPEN, ABOVE, BELOW = 0, 1, 2
"""What is known of a pair: nothing, `other` lies above `one`, `other` lies below `one`."""
PLACED, IMPOSSIBLE, UNDECIDED = 0, 1, 2
FAILS, HOLDS, NARROWED = -1, 0, 1
SHARE = 0.25
"""What a clique that fails adds to the weight of each of its members; a pair that fails adds 1 to its own."""


class Disjunctions(NamedTuple):
    """n buffers, of which pairs exclude each other. Offsets and distances in bytes.

    Of each buffer: `lowest` and `highest` offset, of which it takes a multiple of `unit`. Of each pair: the
    buffers `one` < `other`; either other's offset is at least `up` above one's, or one's is at least `down`
    above other's. `pair_of[i, j]` is the pair of i and j if there is just one, else −1. Clique c has the
    members `member[first[c]:first[c + 1]]`, each with the bytes `[low, high)` of itself that it holds there.
    """

    lowest: Ints
    highest: Ints
    unit: Ints
    one: Ints
    other: Ints
    up: Ints
    down: Ints
    pair_of: Ints
    first: Ints
    member: Ints
    low: Ints
    high: Ints


@kernel
def decide_pairs(task: Disjunctions, initial: Orders, most_work: int, stop: Flags) -> tuple[int, int, Ints]:
    """Whether offsets exist: (PLACED, nodes, offsets), (IMPOSSIBLE, nodes, –), or (UNDECIDED, nodes, –) after
    `most_work` elementary steps (about a nanosecond each) or when `stop[0]` is raised. `initial`: the order
    of each pair, OPEN unless it goes without saying."""
    n, pairs = len(task.lowest), len(task.one)
    # One row a depth of the search, so that going back is going up; rows double when they are used up.
    lower, upper = np.empty((16, n), dtype=np.int64), np.empty((16, n), dtype=np.int64)
    order, assumed = np.empty((16, pairs), dtype=np.int8), np.empty(16, dtype=np.int64)
    lower[0], upper[0], order[0] = task.lowest, task.highest, initial
    weight, work = np.ones(pairs + n), np.zeros(1, dtype=np.int64)
    depth = nodes = 0
    while work[0] < most_work and not stop[0]:
        nodes += 1
        if _propagate(task, lower[depth], upper[depth], order[depth], weight, work):
            pair = _choose(task, lower[depth], upper[depth], order[depth], weight)
            if pair < 0:
                return PLACED, nodes, lower[depth].copy()
            if depth + 1 == len(lower):
                lower, upper = np.concatenate((lower, lower)), np.concatenate((upper, upper))
                order, assumed = np.concatenate((order, order)), np.concatenate((assumed, assumed))
            lower[depth + 1], upper[depth + 1], order[depth + 1] = lower[depth], upper[depth], order[depth]
            order[depth + 1, pair] = _roomier(task, lower[depth], upper[depth], pair)
            assumed[depth] = pair
            depth += 1
        elif depth == 0:
            return IMPOSSIBLE, nodes, task.lowest
        else:
            # With what is known one level up, the assumed order is impossible.
            pair = assumed[depth - 1]
            order[depth - 1, pair] = BELOW if order[depth, pair] == ABOVE else ABOVE
            depth -= 1
    return UNDECIDED, nodes, task.lowest


@kernel
def _roomier(task: Disjunctions, lower: Ints, upper: Ints, pair: int) -> int:
    """The order of the pair that leaves more room."""
    i, j = task.one[pair], task.other[pair]
    above = upper[j] - lower[i] - task.up[pair]
    return ABOVE if above >= upper[i] - lower[j] - task.down[pair] else BELOW


@kernel
def _choose(task: Disjunctions, lower: Ints, upper: Ints, order: Orders, weight: Weights) -> int:
    """The open pair with the least room for its bytes and its weight; −1 when none is open."""
    best, least, pairs = -1, np.inf, len(order)
    for pair in range(pairs):
        if order[pair] == OPEN:
            i, j = task.one[pair], task.other[pair]
            room = float(upper[i] - lower[i]) + float(upper[j] - lower[j]) + 1.0
            room /= float(task.up[pair] + task.down[pair]) * (
                weight[pair] + weight[pairs + i] + weight[pairs + j]
            )
            if room < least:
                best, least = pair, room
    return best


@kernel
def _propagate(
    task: Disjunctions, lower: Ints, upper: Ints, order: Orders, weight: Weights, work: Ints
) -> bool:
    """Narrow the offsets and settle pairs until nothing changes; False when somebody has no offset left."""
    pairs, first = len(order), task.first
    narrowed = True
    while narrowed:
        narrowed = False
        work[0] += 4 * pairs
        for pair in range(pairs):
            outcome = _settle(task, lower, upper, order, pair)
            if outcome == FAILS:
                weight[pair] += 1.0
                return False
            narrowed |= outcome == NARROWED
        for clique in range(len(first) - 1):
            begin, end = first[clique], first[clique + 1]
            work[0] += 12 * (end - begin) * (end - begin)
            outcome = _stack(task, lower, upper, order, begin, end)
            if outcome == FAILS:
                for i in task.member[begin:end]:
                    weight[pairs + i] += SHARE
                return False
            narrowed |= outcome == NARROWED
    return True


@kernel
def _settle(task: Disjunctions, lower: Ints, upper: Ints, order: Orders, pair: int) -> int:
    """Take the only order that is left of an open pair, and hold its two apart."""
    i, j = task.one[pair], task.other[pair]
    was = order[pair]
    if was == OPEN:
        if lower[i] + task.up[pair] > upper[j]:
            order[pair] = BELOW
        elif lower[j] + task.down[pair] > upper[i]:
            order[pair] = ABOVE
        else:
            return HOLDS
    distance = task.up[pair]
    if order[pair] == BELOW:
        i, j, distance = j, i, task.down[pair]
    moved = _raise(task.unit, lower, j, lower[i] + distance)
    moved |= _cut(task.unit, upper, i, upper[j] - distance)
    if lower[i] > upper[i] or lower[j] > upper[j]:
        return FAILS
    return NARROWED if moved or was == OPEN else HOLDS


@kernel
def _raise(unit: Ints, lower: Ints, i: int, least: int) -> bool:
    least = -(-least // unit[i]) * unit[i]
    if least <= lower[i]:
        return False
    lower[i] = least
    return True


@kernel
def _cut(unit: Ints, upper: Ints, i: int, most: int) -> bool:
    most = most // unit[i] * unit[i]
    if most >= upper[i]:
        return False
    upper[i] = most
    return True


@kernel
def _stack(task: Disjunctions, lower: Ints, upper: Ints, order: Orders, first: int, last: int) -> int:
    """The members of a clique share no byte: whatever lies between two bytes must fit there, and above those
    that are known to lie below somebody."""
    member, low, high = task.member[first:last], task.low[first:last], task.high[first:last]
    begin, end, size = lower[member] + low, upper[member] + high, high - low
    by_begin, by_end = np.argsort(-begin), np.argsort(end)
    for limit in end:
        total = 0
        for p in by_begin:
            if end[p] <= limit:
                total += size[p]
                if begin[p] + total > limit:
                    return FAILS
    moved = False
    for q in range(len(member)):
        i = member[q]
        total, least = 0, begin[q]
        for p in by_begin:
            pair = task.pair_of[i, member[p]]
            if pair >= 0 and order[pair] == (ABOVE if i > member[p] else BELOW):
                total += size[p]
                least = max(least, begin[p] + total)
        total, most = 0, end[q]
        for p in by_end:
            pair = task.pair_of[i, member[p]]
            if pair >= 0 and order[pair] == (BELOW if i > member[p] else ABOVE):
                total += size[p]
                most = min(most, end[p] - total)
        moved |= _raise(task.unit, lower, i, least - low[q])
        moved |= _cut(task.unit, upper, i, most - high[q])
        if lower[i] > upper[i]:
            return FAILS
    return NARROWED if moved else HOLDS
