"""Order × skyline: for problems that are full at nearly every step, where each hole costs something."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels import skyline
from memplan_engine.kernels.time_index import TimeIndex, make_time_index
from memplan_engine.problem import Ints
from memplan_engine.strategies.budget import Budget
from memplan_engine.strategies.order_fit import Prepared
from memplan_engine.strategies.orders import busiest_sections

HEATS = (0.0, 8.0)
"""Powers of the live bytes at a buffer's busiest section: where all are about as busy, they say nothing."""
PROMOTION = 0.3
"""By how much the logarithm of a buffer's urgency rises when it ended too high."""
AIM = 0.5
"""Too high is what ends above this share of the way from the bound to the best arena."""
PATIENCE = 12
"""Rounds in vain after which another urgency has its turn."""

Floats = NDArray[np.float64]


def skylines(prepared: Prepared, bound: int, budget: Budget) -> Iterator[Ints]:
    """One placement after the other, without end until the budget ends or the arena is `bound` bytes; only
    for problems of plain buffers.

    First one for each of HEATS, by length × √size × heat; then by turns from each of these, what ended too
    high more urgent from round to round (squeaky wheel optimization, Joslin and Clements 1999).
    """
    size, times = prepared.problem.size, _index(prepared)
    urgencies = [_urgency(prepared, heat) for heat in HEATS]
    arenas = []
    for urgency in urgencies:
        offsets = _place(prepared, times, urgency, budget)
        if offsets is None:
            return
        arenas.append(int((offsets + size).max(initial=0)))
        yield offsets
    turn, best, vain = int(np.argmin(arenas)), min(arenas), 0
    while best > bound:
        urgency = urgencies[turn % len(urgencies)]
        offsets = _place(prepared, times, urgency, budget)
        if offsets is None:
            return
        yield offsets
        ends = offsets + size
        vain = 0 if ends.max() < best else vain + 1
        best = min(best, int(ends.max()))
        urgency += PROMOTION * (ends > bound + AIM * (best - bound))
        if vain == PATIENCE:
            turn, vain = turn + 1, 0


def _index(prepared: Prepared) -> TimeIndex:
    sections, size = prepared.sections, np.array(prepared.problem.size)
    start, end = np.array(sections.first), np.array(sections.last)
    return make_time_index(
        np.arange(len(size) + 1), start, end, np.zeros_like(size), size, len(sections)
    )


def _urgency(prepared: Prepared, heat: float) -> Floats:
    """The logarithm of length × √size × live bytes to the power `heat`."""
    problem, sections = prepared.problem, prepared.sections
    _, live = busiest_sections(prepared)
    length, size = sections.last - sections.first, np.maximum(problem.size, 1)
    urgency: Floats = np.log(length) + np.log(size) / 2 + heat * np.log(np.maximum(live, 1))
    return urgency


def _place(prepared: Prepared, times: TimeIndex, urgency: Floats, budget: Budget) -> Ints | None:
    # Copies: numba compiles once for each mixture of read-only and writable arrays.
    start, end, size, alignment = (
        np.array(column)
        for column in (
            prepared.sections.first,
            prepared.sections.last,
            prepared.problem.size,
            prepared.problem.alignment,
        )
    )
    offsets: Ints = skyline.place_by_skyline(
        np.argsort(-urgency, kind="stable"), start, end, size, alignment, times, skyline.PLACED, budget.stop
    )
    return None if (offsets == skyline.UNPLACED).any() else offsets
