"""Orders made unit by unit, and improved by moving blocks of units."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.walk import (
    LIVE,
    PEAK,
    READY,
    begin_walk,
    freed,
    replay_order,
    rise,
    run,
    run_free,
)
from memplan_engine.kernels.types import Flags, Ints

LONGEST_BLOCK = 16
"""Units that are moved together at most; longer ones hardly ever may move at all."""


@kernel
def greedy_order(o: OrderArrays, limit: int, noise: float, seed: int, free: bool) -> Ints:
    """Least peak first: the ready unit that raises the worst so far least, of those the one that leaves the
    fewest bytes live, then the first. `noise` times the largest output is added to what a unit leaves, times
    a number from 0 to 1. With `free`, whatever runs for nothing within `limit` runs at once."""
    np.random.seed(seed)
    w, most = begin_walk(o), float(o.out.max()) if len(o.out) else 0.0
    while w.counts[READY] > 0:
        worst = max(limit, w.counts[PEAK])
        if free:
            run_free(o, w, worst)
            if w.counts[READY] == 0:
                break
        chosen, least, fewest = -1, 0, 0.0
        for v in w.ready[: w.counts[READY]]:
            peak = max(worst, w.counts[LIVE] + rise(o, w, v))
            left = float(o.out[v] - freed(o, w, v))
            if noise > 0:
                left += noise * most * np.random.random()
            better = peak < least or (peak == least and (left, v) < (fewest, chosen))
            if chosen < 0 or better:
                chosen, least, fewest = v, peak, left
        run(o, w, chosen)
    return w.order


@kernel
def move_blocks(o: OrderArrays, order: Ints, low: int, tries: int, seed: int, stop: Flags) -> Ints:
    """`order` after `tries` random moves of blocks to other places, each kept where neither the peak nor, at
    the same peak, the bytes above `low` summed over all steps get worse."""
    np.random.seed(seed)
    n = len(order)
    live = replay_order(o, order)
    peak, above = live.max(), np.maximum(live - low, 0).astype(np.float64).sum()
    for _ in range(tries):
        if stop[0] or peak <= low:
            break
        begin = np.random.randint(n)
        end = min(n, begin + 1 + np.random.randint(LONGEST_BLOCK))
        first, last = _range_of(o, order, begin, end)
        to = first + np.random.randint(last - first + 1)
        if to == begin:
            continue
        moved = np.concatenate((order[:begin], order[end:]))
        moved = np.concatenate((moved[:to], order[begin:end], moved[to:]))
        live = replay_order(o, moved)
        if len(live) == 0 or live.max() > peak:
            continue
        excess = np.maximum(live - low, 0).astype(np.float64).sum()
        if live.max() < peak or excess <= above:
            order, peak, above = moved, live.max(), excess
    return order


@kernel
def _range_of(o: OrderArrays, order: Ints, begin: int, end: int) -> tuple[int, int]:
    """The first and the last place at which the block `[begin, end)` may begin, among the other units."""
    place = np.empty_like(order)
    for i in range(len(order)):
        place[order[i]] = i
    first, last = 0, len(order) - (end - begin)
    for v in order[begin:end]:
        for i in range(o.before_of[v], o.before_of[v + 1]):
            at = place[o.before[i]]
            if at < begin:
                first = max(first, at + 1)
        for i in range(o.after_of[v], o.after_of[v + 1]):
            at = place[o.after[i]]
            if at >= end:
                last = min(last, at - (end - begin))
    return first, last
