"""tract's partitions: each buffer joins the fullest one that is free over its lifetime."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.trace import Trace, begin_step, end_step, note, take_noted
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.shared_objects.objects import NOBODY, idle_steps, join, make_objects
from memplan_engine.kernels.types import Flags, Ints


@kernel
def assign_to_fullest(
    order: Ints, start: Ints, end: Ints, size: Ints, stop: Flags, trace: Trace | None = None
) -> Ints:
    """The partition of each buffer when each, in `order`, joins the one with the largest sum of sizes among
    those in which nothing is alive with it, the one made first of equals; a new one when there is none.

    NOBODY for those that were left when `stop` was raised. `trace` gets the partitions: number, bytes, the
    sum of sizes, and 1 where it is free.
    """
    partitions = make_objects(len(start))
    total = np.zeros(len(start), dtype=np.int64)
    chosen = np.full(len(start), NOBODY, dtype=np.int64)
    for buffer in order:
        if stop[0]:
            return chosen
        best, most = NOBODY, -1
        if trace is not None:
            begin_step(trace, buffer)
        for other in range(partitions.counts[0]):
            if trace is not None:
                free = idle_steps(partitions, other, start[buffer], end[buffer]) >= 0
                note(trace, other, partitions.size[other], total[other], free, free)
            if total[other] > most and idle_steps(partitions, other, start[buffer], end[buffer]) >= 0:
                best, most = other, total[other]
                if trace is not None:
                    take_noted(trace)
        chosen[buffer] = join(partitions, best, start[buffer], end[buffer], size[buffer])
        total[chosen[buffer]] += size[buffer]
        if trace is not None:
            end_step(trace, chosen[buffer], 0)
    return chosen
