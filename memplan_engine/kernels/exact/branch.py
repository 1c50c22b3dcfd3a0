"""Branch and bound: does one independent part of a problem fit into a capacity?

The time axis is cut into cliques, the largest sets of buffers that are live together. Bytes are counted in
units that divide every offset. `low[u]` is a bound below which buffer u cannot lie, given what is placed; all
that is still to be decided follows from the buffers that are not placed and their lows.

A solution that cannot be pushed down any further has every buffer at 0, at its fixed offset, or directly on
top of another. So a buffer under which no other fits any more either lies at its low, or rests on one that is
not placed yet: at least on the lowest top among its neighbours. That is the only branching, "place or lift".
It needs no order among parts of the problem that do not touch, and may take the clique that has the fewest
choices (fail first). After a branch has ended, the cliques in which branches ended of late come before those:
else what made the trouble lies far up the tree, under decisions that have nothing to do with it (reasoning
from last conflicts, Lecoutre, Saïs, Tabary and Vidal 2009).

A branch ends when a clique is too full (Jackson's bound for one machine with release dates), when a
buffer passes its latest offset, or when its state was refuted before (a table of hashes). Where placed
buffers cut what is left into independent stretches of cliques, each is solved on its own.

Of the solutions only the one that is least in sum(offset × size × cliques²), then in order of index, need be
found. Two rules follow from exchanging buffers, both for plain buffers only (`Part.plain`):
- one whose neighbours all lie within its cliques, and not lower, lies at its low (`_is_base`);
- one that contains another does not rest on that alone when it could lie under it (`branch_state`).

After Moffitt's MiniMalloc (ASPLOS 2023) for canonical placements, floors and splitting; the branching, the
bound by release dates, the exchange rules and the table are our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.exact.branch_state import (
    AREA,
    CONFLICT,
    NEVER,
    NOWHERE,
    PAST,
    TRAIL,
    Part,
    State,
    begin,
    is_wider,
    place,
    propagate,
    raise_low,
    sort_unplaced,
    trail_is_full,
    undo,
)
from memplan_engine.kernels.exact.tree_trace import (
    KNOWN,
    NOTHING_BELOW,
    TreeTrace,
    begin_node,
    end_node,
    note_failure,
    note_state,
)
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

FITS, DOES_NOT_FIT, UNDECIDED = 1, 0, -1

FULLEST, LOWEST, FEWEST_WAYS, FEWEST_LEVEL, LOWEST_FEWEST_WAYS, LOWEST_FEWEST_LEVEL, FULLEST_FEWEST_LEVEL = (
    range(7)
)
"""Which clique is decided next: the fullest, the lowest, the one with the fewest buffers that may lie at its
floor (`ways`), or that could lie there at once (`level`); or the first of two, ties by the second."""

PLACE, FORCED, LIFT, SPLIT = range(4)
"""Kinds of frames."""
REMEMBERED = 8
"""Cliques of late conflicts, each taken once. One is a third as good, sixteen are no better."""


class Frames(NamedTuple):
    """The branchings that led here, the first `depth[0]` rows: their kind, the cliques `[lo, hi)` they are
    about, the buffer, the state they were met in, and both trails' marks."""

    kind: Ints
    lo: Ints
    hi: Ints
    who: Ints
    state: Hashes
    mark: Ints
    past_mark: Ints
    depth: Ints


@kernel
def branch(
    part: Part,
    lows: Ints,
    rule: int,
    priority: Floats,
    most_raises: int,
    most_nodes: int,
    table: Hashes,
    counter: Ints,
    stop: Flags,
    trace: TreeTrace | None = None,
) -> tuple[int, Ints, int]:
    """Search `part`; FITS with offsets (units), DOES_NOT_FIT when that is proved, or UNDECIDED; and how far
    it came: the most units of all cliques that were placed at once.

    Parameters
    ----------
    lows: the lowest offset of each buffer, units.
    rule: how the next clique is chosen. priority: of the buffers at its floor, the highest comes first.
    most_raises: how often at each node `_raise_over_waste` may act.
    most_nodes: give up after so many nodes. table: 2^k slots for refuted states; empty, or of earlier
        searches of the same part.
    counter: grows by the nodes visited. stop: raised from outside to give up. trace: where to note nodes.
    """
    s, f = begin(part, lows), _no_frames(16 * len(lows) + 64)
    lo, hi, nodes, most_area = 0, len(part.cap), 0, 0
    conflicts = np.full(REMEMBERED, NOWHERE)
    sound: bool = True
    while True:
        if sound and propagate(part, s, most_raises):
            nodes += 1
            counter[0] += 1
            most_area = max(most_area, s.counts[AREA])
            if nodes > most_nodes or stop[0] or f.depth[0] + 4 > len(f.kind) or trail_is_full(s):
                return UNDECIDED, s.low, most_area
            if trace is not None:
                note_state(trace, part, s)
            lo, hi = _open_stretch(s, f, lo, hi)
            if lo == hi:
                return FITS, s.low, most_area
            state = _hash(part, s, lo, hi)
            if table[state & np.uint64(len(table) - 1)] != state:
                clique = _choose(part, s, lo, hi, conflicts, rule)
                u = _lowest_below(part, s, _first_of(part, s, clique, priority))
                kind = FORCED if part.plain and _is_base(part, s, u) else PLACE
                if trace is not None:
                    begin_node(trace, f.depth[0], kind, u, s.low[u])
                _push(s, f, kind, lo, hi, u, state)
                sound = place(part, s, u)
                continue
            if trace is not None:
                end_node(trace, KNOWN)
        elif trace is not None:
            note_failure(trace, part, s)
        _remember(s, conflicts)
        lo, hi = _back(part, s, f, table, trace)
        if lo == hi:
            return DOES_NOT_FIT, s.low, most_area
        sound = True


@kernel(inline=True)
def _no_frames(room: int) -> Frames:
    return Frames(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.uint64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.zeros(1, np.int64),
    )


@kernel(inline=True)
def _push(s: State, f: Frames, kind: int, lo: int, hi: int, who: int, state: np.uint64) -> None:
    top = f.depth[0]
    f.kind[top], f.lo[top], f.hi[top], f.who[top], f.state[top] = kind, lo, hi, who, state
    f.mark[top], f.past_mark[top] = s.counts[TRAIL], s.counts[PAST]
    f.depth[0] += 1


@kernel(inline=True)
def _back(part: Part, s: State, f: Frames, table: Hashes, trace: TreeTrace | None) -> tuple[int, int]:
    """Take back to the latest branching that has its second way left, and take that: the cliques that it is
    about, or none when all is refuted. What has no way left is entered in the table."""
    while f.depth[0] > 0:
        top = f.depth[0] - 1
        undo(part, s, f.mark[top], f.past_mark[top])
        if f.kind[top] == PLACE:
            f.kind[top] = LIFT
            target = _lowest_top(part, s, f.who[top])
            if trace is not None:
                begin_node(trace, top, LIFT, f.who[top], s.low[f.who[top]])
            if target < NEVER and raise_low(part, s, f.who[top], target):
                return f.lo[top], f.hi[top]
            if trace is not None:
                note_failure(trace, part, s)
                if target == NEVER:
                    end_node(trace, NOTHING_BELOW)
        else:
            if f.kind[top] != SPLIT:
                table[f.state[top] & np.uint64(len(table) - 1)] = f.state[top]
            f.depth[0] -= 1
    return 0, 0


@kernel(inline=True)
def _open_stretch(s: State, f: Frames, lo: int, hi: int) -> tuple[int, int]:
    """The fullest stretch of `[lo, hi)` that is left, or of the latest split that has one; empty when all is
    placed."""
    lo, hi = _trim(s, lo, hi)
    while lo == hi:
        while f.depth[0] > 0 and f.kind[f.depth[0] - 1] != SPLIT:
            f.depth[0] -= 1
        if f.depth[0] == 0:
            return 0, 0
        lo, hi = _trim(s, f.lo[f.depth[0] - 1], f.hi[f.depth[0] - 1])
        if lo == hi:
            f.depth[0] -= 1
    if _stretch(s, lo, hi) == hi:
        return lo, hi
    if f.depth[0] == 0 or f.kind[f.depth[0] - 1] != SPLIT:
        _push(s, f, SPLIT, lo, hi, -1, np.uint64(0))
    return _fullest_stretch(s, lo, hi)


@kernel(inline=True)
def _is_base(part: Part, s: State, u: int) -> bool:
    """Whether u may lie under all its unplaced neighbours: moving it there moves them only within its
    cliques, and up by no more than it leaves free."""
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if not s.placed[v] and (s.low[v] < s.low[u] or not is_wider(part, u, v)):
            return False
    return True


@kernel(inline=True)
def _lowest_top(part: Part, s: State, u: int) -> int:
    """The lowest end of an unplaced neighbour of u: what u must rest on when it does not lie at its low."""
    lowest = NEVER
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if not s.placed[v]:
            lowest = min(lowest, s.low[v] + part.size[v])
    return lowest


@kernel(inline=True)
def _lowest_below(part: Part, s: State, u: int) -> int:
    """u, or a buffer that still fits under it and under which nothing fits."""
    below = u
    while below >= 0:
        u, below, end = below, -1, s.low[below] + 1
        for i in range(part.near_of[u], part.near_of[u + 1]):
            v = part.near[i]
            if not s.placed[v] and s.low[v] + part.size[v] < end:
                below, end = v, s.low[v] + part.size[v]
    return u


@kernel(inline=True)
def _trim(s: State, lo: int, hi: int) -> tuple[int, int]:
    while lo < hi and s.unplaced[lo] == 0:
        lo += 1
    while lo < hi and s.unplaced[hi - 1] == 0:
        hi -= 1
    return lo, hi


@kernel(inline=True)
def _stretch(s: State, lo: int, hi: int) -> int:
    """The end of the cliques from `lo` that unplaced buffers tie together."""
    end = lo + 1
    while end < hi and s.reaching[end - 1] > 0:
        end += 1
    return end


@kernel(inline=True)
def _fullest_stretch(s: State, lo: int, hi: int) -> tuple[int, int]:
    best, best_lo, best_hi = -1, lo, hi
    while lo < hi:
        if s.unplaced[lo] == 0:
            lo += 1
            continue
        end = _stretch(s, lo, hi)
        fullest = s.load[lo:end].max()
        if fullest > best:
            best, best_lo, best_hi = fullest, lo, end
        lo = end
    return best_lo, best_hi


@kernel(inline=True)
def _hash(part: Part, s: State, lo: int, hi: int) -> np.uint64:
    """What is left to decide in the cliques `[lo, hi)`, as one number."""
    digest = np.uint64(0)
    for u in range(part.begins[lo], part.begins[hi]):
        if not s.placed[u]:
            x = np.uint64(u + 1) * np.uint64(0x9E3779B97F4A7C15)
            x ^= np.uint64(s.low[u]) * np.uint64(0xC2B2AE3D27D4EB4F)
            x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            digest += x ^ (x >> np.uint64(32))
    return digest


@kernel(inline=True)
def _remember(s: State, conflicts: Ints) -> None:
    """Put the clique in which the branch has ended before all others."""
    clique, place = s.counts[CONFLICT], 0
    if clique == NOWHERE:
        return
    s.counts[CONFLICT] = NOWHERE
    while place < len(conflicts) - 1 and conflicts[place] != clique:
        place += 1
    conflicts[1 : place + 1] = conflicts[:place].copy()
    conflicts[0] = clique


@kernel(inline=True)
def _recall(s: State, conflicts: Ints, lo: int, hi: int) -> int:
    """The latest conflict in `[lo, hi)` that still has something to place, which is then forgotten."""
    for i in range(len(conflicts)):
        clique = conflicts[i]
        if lo <= clique < hi and s.unplaced[clique] > 0:
            conflicts[i:-1] = conflicts[i + 1 :].copy()
            conflicts[-1] = NOWHERE
            return clique
    return NOWHERE


@kernel(inline=True)
def _choose(part: Part, s: State, lo: int, hi: int, conflicts: Ints, rule: int) -> int:
    """The clique of a late conflict, or else the one that `rule` takes."""
    chosen, best, second = _recall(s, conflicts, lo, hi), NEVER, NEVER
    if chosen != NOWHERE:
        return chosen
    for clique in range(lo, hi):
        if s.unplaced[clique] == 0:
            continue
        slack = part.cap[clique] - s.load[clique]
        first, then = slack, s.floor[clique]
        if rule == LOWEST:
            first, then = s.floor[clique], slack
        elif rule == FEWEST_WAYS:
            first, then = s.ways[clique] + (slack > 0), slack
        elif rule == FEWEST_LEVEL:
            first, then = s.level[clique] + (slack > 0), slack
        elif rule == LOWEST_FEWEST_WAYS:
            first, then = s.floor[clique], s.ways[clique]
        elif rule == LOWEST_FEWEST_LEVEL:
            first, then = s.floor[clique], s.level[clique]
        elif rule == FULLEST_FEWEST_LEVEL:
            first, then = slack, s.level[clique]
        if first < best or (first == best and then < second):
            chosen, best, second = clique, first, then
    return chosen


@kernel(inline=True)
def _first_of(part: Part, s: State, clique: int, priority: Floats) -> int:
    """The unplaced buffer of highest priority at the floor of `clique`."""
    members, _, _ = sort_unplaced(part, s, clique)
    buffer = members[0]
    for u in members[: s.level[clique]]:
        if priority[u] > priority[buffer]:
            buffer = u
    return buffer
