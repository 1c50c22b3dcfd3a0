"""The moves of local search: repair by ejection, and parts packed by themselves.

Such a part is what lies around the busiest step, or around a buffer that has no place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memplan_engine.kernels.search import repair, time_index
from memplan_engine.problem import FREE, Ints, Problem, select
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import Timeline, kernel_columns, make_timeline
from memplan_engine.strategies.exact.independent_parts import PartSearch, independent
from memplan_engine.strategies.search.search_params import DEFAULTS, WindowParams


@dataclass(frozen=True, slots=True, eq=False)
class EjectionSearch:
    """Repairs placements of one problem below one ceiling after the other."""

    state: repair.Repair
    length: Ints

    def begin(self, offsets: Ints, ceiling: int, by_size: float, by_length: float) -> None:
        """Start from `offsets`, with what has none or ends above `ceiling` bytes in the pool.

        A buffer weighs its size to the power `by_size` × its length in sections to the power `by_length`.
        """
        columns = self.state.columns
        columns.weight[:] = (
            np.maximum(columns.size, 1.0) ** by_size * np.maximum(self.length, 1.0) ** by_length
        )
        repair.begin(self.state, np.array(offsets), ceiling)

    @property
    def out(self) -> int:
        """How many buffers are in the pool."""
        return int(self.state.counts[repair.OUT])

    @property
    def moves(self) -> int:
        """How many moves it has made since the begin."""
        return int(self.state.counts[repair.MOVES])

    @property
    def spent(self) -> int:
        """How many neighbours these moves have looked at: what they cost."""
        return int(self.state.counts[repair.EFFORT])

    @property
    def offsets(self) -> Ints:
        """Where each buffer lies now, UNPLACED for those in the pool."""
        return self.state.offset.copy()

    def repair(
        self, ceiling: int, best: int, allowed: repair.RepairLimits, seed: int, limits: SolveLimits
    ) -> Ints | None:
        """Go on until an arena below `best` bytes is found; its offsets, or None at what is `allowed`.

        To go on afterwards, call again.
        """
        arena = repair.repair(self.state, ceiling, best, allowed, seed, limits.stop, limits.counter)
        return self.state.whole.copy() if arena < best else None


def make_ejection_search(timeline: Timeline, params: repair.RepairParams = DEFAULTS.repair) -> EjectionSearch:
    """An ejection search with nothing placed: O(n log n) time, O(n) memory."""
    first, start, end, low, high, size, alignment = kernel_columns(timeline)
    index = time_index.make_time_index(first, start, end, low, high, len(timeline.sections))
    total = np.concatenate([[0], np.cumsum(end - start)])
    length = total[first[1:]] - total[first[:-1]]
    held = timeline.problem.fixed != FREE
    columns = repair.Columns(first, start, end, low, high, size, alignment, held, np.ones(len(size)))
    return EjectionSearch(repair.make_repair(columns, index, _room(first, start, end), params), length)


def _room(first: Ints, start: Ints, end: Ints) -> int:
    """The most pieces that one buffer meets, each counted once for each of its own pieces that it meets."""
    meets = np.searchsorted(np.sort(start), end) - np.searchsorted(np.sort(end), start, side="right")
    total = np.concatenate([[0], np.cumsum(meets)])
    return int((total[first[1:]] - total[first[:-1]]).max(initial=0))


def distances(timeline: Timeline) -> Ints:
    """How many sections lie between each buffer's lifetime and the busiest section, 0 for those live there.

    For plain buffers: O(n log n).
    """
    sections, pieces = timeline.sections, timeline.pieces
    peak = int(live_bytes(sections, pieces.high - pieces.low).argmax())
    apart = np.maximum(sections.first - peak, peak + 1 - sections.last)
    return np.maximum(apart, 0)


def peak_window(timeline: Timeline, share: float) -> Ints:
    """The buffers nearest to the busiest section: `share` times as many as are live there, and all that are
    as near as the farthest of them."""
    apart = distances(timeline)
    count = min(len(apart), int((apart == 0).sum() * share))
    return np.flatnonzero(apart <= np.partition(apart, count - 1)[count - 1])


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
    search after Shaw, 1998). What a move costs follows from what is live around it, not from n.
    """
    offsets = ejection.offsets
    out = np.flatnonzero(offsets == repair.UNPLACED)
    random = np.random.default_rng((seed, len(out)))
    for buffer in random.permutation(out)[: params.most_out].tolist():
        for freed in params.freed:
            if limits.stopped or _pack_one(
                problem, ejection, offsets, buffer, freed, ceiling, random, limits, params
            ):
                break
    return offsets if (offsets[out] != repair.UNPLACED).any() else None


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
    placed = np.flatnonzero((ejection.state.offset == repair.UNPLACED) & (offsets != repair.UNPLACED))
    near = _live_with(problem, ejection, np.array([buffer]))
    near = near[(problem.fixed[near] == FREE) & (offsets[near] != repair.UNPLACED)]
    length = (problem.end - problem.start)[near] * random.uniform(0.5, 2.0, len(near))
    inside = np.concatenate([[buffer], near[np.argsort(length)][:freed]])
    around = np.setdiff1d(np.concatenate([_live_with(problem, ejection, inside), placed]), inside)
    around = around[offsets[around] != repair.UNPLACED]
    if len(around) > params.most_around:
        return False
    rows = np.concatenate([inside, around])
    packed = _pack(_with_fixed(problem, rows, len(inside), offsets), ceiling, limits, params)
    if packed is None:
        return False
    offsets[inside] = packed[: len(inside)]
    return True


def _live_with(problem: Problem, ejection: EjectionSearch, rows: Ints) -> Ints:
    """The placed buffers that are live at some step of one of `rows`."""
    columns, times = ejection.state.columns, ejection.state.times
    neighbours = (
        np.empty(len(times.piece) + 1, dtype=np.int64) if len(rows) > 1 else ejection.state.neighbours
    )
    owners = []
    for row in rows.tolist():
        for piece in range(columns.first[row], columns.first[row + 1]):
            count = time_index.meeting(times, columns.start[piece], columns.end[piece], neighbours, 0)
            owners.append(times.owner[neighbours[:count]])
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
