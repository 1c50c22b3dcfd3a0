"""The busiest first, each where it touches most: for lifetimes of all lengths at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memplan_engine.kernels.search import contact
from memplan_engine.kernels.search.radix import make_sorter
from memplan_engine.kernels.search.time_index import make_time_index
from memplan_engine.problem import Ints
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import if_complete
from memplan_engine.strategies.constructive.orders import busiest_sections
from memplan_engine.strategies.constructive.timeline import Timeline, kernel_columns
from memplan_engine.strategies.search.search_params import DEFAULTS, SearchParams


@dataclass(frozen=True, slots=True, eq=False)
class Urgency:
    """By buffer: the live bytes at its busiest section, and how many sections it lives at least before and
    after that. What is there from the beginning or to the end counts as there for ever."""

    busiest: Ints
    around: Ints

    def order(self, size: Ints) -> Ints:
        """The busiest first; of equals first what is there longest to both sides: it lies at the edge of
        the arena, and what comes and goes near the peak shares one stretch of bytes."""
        return np.lexsort((-size, -self.around, -self.busiest))


def urgency(timeline: Timeline) -> Urgency:
    """Of each buffer of a problem without gaps: O(n log n)."""
    sections = timeline.sections
    first, last = np.array(sections.first), np.array(sections.last)
    peak, live = busiest_sections(timeline)
    ever = len(sections)
    before = np.where(first == 0, ever, peak - first)
    after = np.where(last == ever, ever, last - 1 - peak)
    return Urgency(live, np.minimum(before, after))


def placements(
    timeline: Timeline, ceiling: int, limits: SolveLimits, params: SearchParams = DEFAULTS
) -> Iterator[Ints]:
    """One placement after the other, in the order of urgency; what ended above `ceiling` bytes comes earlier
    in the next (squeaky wheel optimization, Joslin and Clements 1999). Ends when nothing does, when fewer
    bytes are not to be had in this way, or with the limits; only for problems of plain buffers."""
    problem, ranks = timeline.problem, urgency(timeline)
    least = np.inf
    while True:
        offsets = _place(timeline, ranks.order(problem.size), ceiling, limits, params.contact)
        if offsets is None:
            return
        yield offsets
        above = offsets + problem.size > ceiling
        outside = int(problem.size[above].sum())
        busiest = np.where(above, ranks.busiest + int(ceiling * params.contact_promotion), ranks.busiest)
        busiest = np.minimum(busiest, ranks.busiest.max(initial=0))
        if not outside < least or (busiest == ranks.busiest).all():
            return
        least, ranks = outside, Urgency(busiest, ranks.around)


def _place(
    timeline: Timeline, order: Ints, ceiling: int, limits: SolveLimits, params: contact.ContactParams
) -> Ints | None:
    first, start, end, low, high, size, alignment = kernel_columns(timeline)
    times = make_time_index(first, start, end, low, high, len(timeline.sections))
    found, by_low = np.empty(len(first), dtype=np.int64), make_sorter(len(first))
    return if_complete(
        contact.place_by_contact(
            np.array(order), start, end, size, alignment, times, ceiling, limits.stop, found, by_low, params
        )
    )
