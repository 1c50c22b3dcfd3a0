"""Plain buffers by urgency: the busiest first where each touches most, or on a skyline.

Contact fit is for lifetimes of all lengths at once, skylines are for problems that are full at nearly every
step, where each hole costs something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.search import contact, skyline
from memplan_engine.kernels.search.radix import make_sorter
from memplan_engine.kernels.search.time_index import TimeIndex, make_time_index
from memplan_engine.problem import Ints
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import if_complete
from memplan_engine.strategies.constructive.orders import Timeline, busiest_sections, kernel_columns
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
        offsets = _place_by_contact(timeline, ranks.order(problem.size), ceiling, limits, params.contact)
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


def _place_by_contact(
    timeline: Timeline, order: Ints, ceiling: int, limits: SolveLimits, params: contact.ContactParams
) -> Ints | None:
    first, start, end, low, high, size, alignment = kernel_columns(timeline)
    times = make_time_index(first, start, end, low, high, len(timeline.sections))
    neighbours, by_low = np.empty(len(first), dtype=np.int64), make_sorter(len(first))
    return if_complete(
        contact.place_by_contact(
            np.array(order),
            start,
            end,
            size,
            alignment,
            times,
            ceiling,
            limits.stop,
            neighbours,
            by_low,
            params,
        )
    )


Floats = NDArray[np.float64]


class Skylines:
    """Placements of one problem of plain buffers, each by an urgency that its predecessor has changed.

    The first are by each of `params.skyline_urgencies`. Then by turns from each of these, what ended too high
    more urgent from round to round (squeaky wheel optimization, Joslin and Clements 1999).
    """

    def __init__(self, timeline: Timeline, bound: int, params: SearchParams = DEFAULTS) -> None:
        self.timeline, self.bound, self.params = timeline, bound, params
        self._times = make_time_index(*kernel_columns(timeline)[:5], len(timeline.sections))
        self._urgencies = [_skyline_urgency(timeline, *weights) for weights in params.skyline_urgencies]
        self._arenas: list[int] = []
        self._turn, self._vain = 0, 0

    def next(self, limits: SolveLimits) -> Ints | None:
        """Offsets in bytes; None when the limits are reached before."""
        size, count = self.timeline.problem.size, len(self._urgencies)
        urgency = self._urgencies[self._turn % count]
        offsets = _place_by_skyline(self.timeline, self._times, urgency, limits)
        if offsets is None:
            return None
        ends = offsets + size
        arena = int(ends.max(initial=0))
        self._vain = self._vain + 1 if self._arenas and arena >= min(self._arenas) else 0
        self._arenas.append(arena)
        if len(self._arenas) <= count:
            self._turn = len(self._arenas) if len(self._arenas) < count else int(np.argmin(self._arenas))
            self._vain = 0
            return offsets
        height = self.bound + self.params.skyline_aim * (min(self._arenas) - self.bound)
        urgency += self.params.skyline_promotion * (ends > height)
        if self._vain == self.params.skyline_patience:
            self._turn, self._vain = self._turn + 1, 0
        return offsets


def fullness(timeline: Timeline) -> float:
    """Live bytes, on average over the sections, as a share of their peak; 0 where there are none."""
    live = live_bytes(timeline.sections, timeline.pieces.high - timeline.pieces.low)
    return float(live.mean() / max(1, live.max())) if len(live) else 0.0


def _skyline_urgency(timeline: Timeline, by_size: float, by_heat: float) -> Floats:
    """The logarithm of length × size to the power `by_size` × live bytes to the power `by_heat`."""
    problem, sections = timeline.problem, timeline.sections
    _, live = busiest_sections(timeline)
    length, size = sections.last - sections.first, np.maximum(problem.size, 1)
    urgency: Floats = np.log(length) + by_size * np.log(size) + by_heat * np.log(np.maximum(live, 1))
    return urgency


def _place_by_skyline(
    timeline: Timeline, times: TimeIndex, urgency: Floats, limits: SolveLimits
) -> Ints | None:
    _, start, end, _, _, size, alignment = kernel_columns(timeline)
    return if_complete(
        skyline.place_by_skyline(
            np.argsort(-urgency, kind="stable"),
            start,
            end,
            size,
            alignment,
            times,
            skyline.PLACED,
            limits.stop,
        )
    )
