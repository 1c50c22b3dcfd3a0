"""Parts packed by themselves: the buffers around the busiest step, or around one that has no place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.kernels.search.repair import UNPLACED
from memplan_engine.kernels.search.time_index import meeting
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import Timeline, make_timeline
from memplan_engine.strategies.exact.attempts import PartSearch
from memplan_engine.strategies.exact.independent_parts import independent
from memplan_engine.strategies.search.ejection_search import EjectionSearch
from memplan_engine.strategies.search.search_params import DEFAULTS, WindowParams


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


def pack_windows(
    problem: Problem,
    ejection: EjectionSearch,
    ceiling: int,
    seed: int,
    limits: SolveLimits,
    params: WindowParams = DEFAULTS.windows,
) -> Ints | None:
    """Offsets below `ceiling` bytes of more buffers than `ejection` has placed, UNPLACED for those still out;
    None when no window helped.

    Each buffer that `ejection` has left without a place is packed together with some neighbours in time,
    the shortest-lived first, by branch and bound; all else stays where it is (large-neighbourhood
    search after Shaw, 1998). What a move costs follows from what is alive around it, not from n.
    """
    offsets = ejection.offsets
    out = np.flatnonzero(offsets == UNPLACED)
    random = np.random.default_rng((seed, len(out)))
    for buffer in random.permutation(out)[: params.most_out].tolist():
        for freed in params.freed:
            if limits.stopped or _pack_one(
                problem, ejection, offsets, buffer, freed, ceiling, random, limits, params
            ):
                break
    return offsets if (offsets[out] != UNPLACED).any() else None


def _pack_one(
    problem: Problem,
    ejection: EjectionSearch,
    offsets: Ints,
    buffer: int,
    freed: int,
    ceiling: int,
    random: np.random.Generator,
    limits: SolveLimits,
    params: WindowParams,
) -> bool:
    """Find a place for `buffer` and new ones for `freed` of its neighbours; changes `offsets` if it can."""
    # The ejection does not know those that earlier windows have placed.
    placed = np.flatnonzero((ejection.state.offset == UNPLACED) & (offsets != UNPLACED))
    near = _alive_with(problem, ejection, np.array([buffer]))
    near = near[(problem.fixed[near] == FREE) & (offsets[near] != UNPLACED)]
    length = (problem.end - problem.start)[near] * random.uniform(0.5, 2.0, len(near))
    inside = np.concatenate([[buffer], near[np.argsort(length)][:freed]])
    around = np.setdiff1d(np.concatenate([_alive_with(problem, ejection, inside), placed]), inside)
    around = around[offsets[around] != UNPLACED]
    if len(around) > params.most_around:
        return False
    rows = np.concatenate([inside, around])
    packed = _pack(_with_fixed(problem, rows, len(inside), offsets), ceiling, limits, params)
    if packed is None:
        return False
    offsets[inside] = packed[: len(inside)]
    return True


def _alive_with(problem: Problem, ejection: EjectionSearch, rows: Ints) -> Ints:
    """The placed buffers that are alive at some step of one of `rows`."""
    columns, times = ejection.state.columns, ejection.state.times
    found = np.empty(len(times.piece) + 1, dtype=np.int64) if len(rows) > 1 else ejection.state.found
    owners = []
    for row in rows.tolist():
        for piece in range(columns.first[row], columns.first[row + 1]):
            count = meeting(times, columns.start[piece], columns.end[piece], found, 0)
            owners.append(times.owner[found[:count]])
    return np.unique(np.concatenate(owners)) if owners else rows[:0]


def _with_fixed(problem: Problem, rows: Ints, inside: int, offsets: Ints) -> Problem:
    """The buffers `rows` as a problem in which all but the first `inside` keep their offsets."""
    alone = select(problem, rows)
    fixed = np.array(alone.fixed)
    fixed[inside:] = offsets[rows[inside:]]
    return replace(alone, fixed=fixed)


def _pack(window: Problem, ceiling: int, limits: SolveLimits, params: WindowParams) -> Ints | None:
    offsets = np.maximum(window.fixed, 0)
    # The search counts its moves, not these nodes.
    uncounted = SolveLimits(seed=limits.seed, stop=limits.stop)
    for rows in independent(window):
        search = PartSearch(window, rows, select(window, rows), limits.seed)
        nodes = min(params.nodes, params.work // len(rows))
        for attempt in range(params.attempts):
            _, placed = search.attempt(ceiling, attempt, uncounted, nodes)
            if placed is not None:
                offsets[rows] = placed
                break
        else:
            return None
    return offsets
