"""What lies directly above and below a buffer in the arena."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.plan import Plan


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The buffers that touch or come nearest to one buffer, among those live with it, lowest first.

    `room_above` and `room_below` are the free bytes between; above the topmost buffer, up to the arena's end.
    """

    above: tuple[int, ...]
    below: tuple[int, ...]
    room_above: int
    room_below: int


def find_neighbours(plan: Plan, buffer: int) -> Neighbours:
    """The nearest buffers above and below `buffer`: O(n). Gaps are not looked into."""
    problem, low = plan.problem, plan.offsets
    high = low + problem.size
    together = (problem.start < problem.end[buffer]) & (problem.start[buffer] < problem.end)
    together[buffer] = False
    over = np.flatnonzero(together & (low >= high[buffer]))
    under = np.flatnonzero(together & (high <= low[buffer]))
    ceiling = int(low[over].min(initial=plan.arena_bytes))
    floor = int(high[under].max(initial=0))
    return Neighbours(
        above=tuple(over[low[over] == ceiling].tolist()),
        below=tuple(under[high[under] == floor].tolist()),
        room_above=ceiling - int(high[buffer]),
        room_below=int(low[buffer]) - floor,
    )
