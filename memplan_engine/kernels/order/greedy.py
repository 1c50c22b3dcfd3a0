"""Orders made unit by unit."""

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
    rise,
    run,
    run_free,
)
from memplan_engine.kernels.types import Ints


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
