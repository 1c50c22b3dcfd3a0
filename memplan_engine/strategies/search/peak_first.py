"""The buffers around the busiest step as a problem of their own, and all others placed around its solution.

Where one step sets the bound, few placements of what is alive near it leave room for what comes and goes
there; far from it nearly every placement does. A window is small, so that a move in it costs little.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.constructive.timeline import Timeline, make_timeline


def distances(timeline: Timeline) -> Ints:
    """How many sections lie between each buffer's lifetime and the busiest section, 0 for those alive there.

    For plain buffers: O(n log n).
    """
    sections, pieces = timeline.sections, timeline.pieces
    peak = int(live_bytes(sections, pieces.high - pieces.low).argmax())
    apart = np.maximum(sections.first - peak, peak + 1 - sections.last)
    return np.maximum(apart, 0)


def peak_window(timeline: Timeline, share: float) -> Ints:
    """The buffers nearest to the busiest section: `share` times as many as are alive there, and all that are
    as near as the farthest of them."""
    apart = distances(timeline)
    wanted = min(len(apart), int((apart == 0).sum() * share))
    return np.flatnonzero(apart <= np.partition(apart, wanted - 1)[wanted - 1])


def held_at(problem: Problem, rows: Ints, offsets: Ints) -> Timeline:
    """`problem` with the buffers `rows` fixed at `offsets` (bytes): what remains is to place the others."""
    fixed = np.full(len(problem), FREE, dtype=np.int64)
    fixed[rows] = offsets
    return make_timeline(replace(problem, fixed=fixed))
