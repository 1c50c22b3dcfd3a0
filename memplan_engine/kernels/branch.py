"""Branch and bound: does one independent part of a problem fit into a capacity?

The time axis is cut into columns, the largest sets of buffers that are alive together. Bytes are counted in
units that divide every offset. `low[u]` is a bound below which buffer u cannot lie, given what is placed; all
that is still to be decided follows from the buffers that are not placed and their lows.

A solution that cannot be pushed down any further has every buffer at 0, at its fixed offset, or directly on
top of another. So a buffer under which no other fits any more either lies at its low, or rests on one that is
not placed yet: at least on the lowest top among its neighbours. That is the only branching, "place or lift".
It needs no order among parts of the problem that do not touch, and may take the column that has the fewest
choices (fail first).

A branch ends when a column is too full (`_load`: Jackson's bound for one machine with release dates), when a
buffer passes its latest offset, or when its state was refuted before (a table of hashes). Where placed buffers
cut what is left into independent stretches of columns, each is solved on its own.

Of the solutions only the one that is least in sum(offset × size × columns²), then in order of index, need be
found. Two rules follow from exchanging buffers, both for plain buffers only (`Part.plain`):
- one whose neighbours all lie within its columns, and not lower, lies at its low (`_is_base`);
- one that contains another does not rest on that alone when it could lie under it (`_raise_wider`).

After Moffitt's MiniMalloc (ASPLOS 2023) for canonical placements, floors and splitting; the branching, the
bound by release dates, the exchange rules and the table are our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from memplan_engine.kernels.types import Flags, Ints

Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

FITS, DOES_NOT_FIT, UNDECIDED = 1, 0, -1

FULLEST, LOWEST, FEWEST_WAYS, FEWEST_LEVEL, LOWEST_FEWEST_WAYS, LOWEST_FEWEST_LEVEL, FULLEST_FEWEST_LEVEL = range(7)
"""Which column is decided next: the fullest, the lowest, the one with the fewest buffers that may lie at its
floor (`ways`), or that could lie there at once (`level`); or the first of two, ties by the second."""

TRAIL, PAST, QUEUE, RAISES = range(4)
"""Rows of `State.count`."""
PLACE, FORCED, LIFT, SPLIT = range(4)
"""Kinds of frames."""
NEVER = np.int64(2**62)


class Part(NamedTuple):
    """An independent part of a problem; offsets and sizes in units. Buffers are in order of `first`.

    first, last: the columns `[first, last)` of each buffer's lifetime; size, alignment, latest: in units;
    latest is the highest offset allowed, for fixed buffers their offset. columns: those that a buffer really
    holds, from `columns_of[u]` to `columns_of[u + 1]`. near: its neighbours in time, likewise. members: the
    buffers of each column. begins: the first buffer of each column. cap: where each column ends. plain: no
    gaps, fixed offsets or alignments, so that the exchange rules hold.
    """

    first: Ints
    last: Ints
    size: Ints
    alignment: Ints
    latest: Ints
    columns_of: Ints
    columns: Ints
    near_of: Ints
    near: Ints
    members_of: Ints
    members: Ints
    begins: Ints
    cap: Ints
    plain: bool


class State(NamedTuple):
    """What is decided: per buffer `low` and `placed`; per column how many are unplaced, how many of them
    reach into the next, the least end (`load`), the lowest low (`floor`), how many lie there
    (`level`), and how many may be the lowest in the end (`ways`).
    What must be undone stands on two trails: buffers raised or placed, and `past` values of columns."""

    low: Ints
    placed: Flags
    unplaced: Ints
    reaching: Ints
    load: Ints
    floor: Ints
    ways: Ints
    level: Ints
    members: Ints
    dirty: Flags
    queue: Ints
    trail_who: Ints
    trail_low: Ints
    past: Ints
    count: Ints


@njit(cache=True, nogil=True)
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
) -> tuple[int, Ints]:
    """Search `part`; FITS with offsets (units), DOES_NOT_FIT when that is proved, or UNDECIDED.

    Parameters
    ----------
    lows: the lowest offset of each buffer, units.
    rule: how the next column is chosen. priority: of the buffers at its floor, the highest comes first.
    most_raises: how often at each node `_raise_over_waste` may act.
    most_nodes: give up after so many nodes. table: 2^k slots for refuted states; empty, or of earlier
        searches of the same part.
    counter: grows by the nodes visited. stop: raised from outside to give up.
    """
    s = _begin(part, lows)
    room = 16 * len(lows) + 64
    kind, who, state_hash = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint64)
    low_column, high_column = np.empty(room, np.int64), np.empty(room, np.int64)
    mark, past_mark = np.empty(room, np.int64), np.empty(room, np.int64)
    mask = np.uint64(len(table) - 1)
    lo, hi, frames, nodes, sound = 0, len(part.cap), 0, 0, True
    while True:
        sound = sound and _propagate(part, s, most_raises)
        if sound:
            nodes += 1
            counter[0] += 1
            if nodes > most_nodes or stop[0] or frames + 4 > room or _trail_is_full(s):
                return UNDECIDED, s.low
            lo, hi = _trim(s, lo, hi)
            if lo == hi:
                # This stretch is done: back to the latest split that has another.
                while lo == hi:
                    while frames > 0 and kind[frames - 1] != SPLIT:
                        frames -= 1
                    if frames == 0:
                        return FITS, s.low
                    lo, hi = _trim(s, low_column[frames - 1], high_column[frames - 1])
                    frames -= lo == hi
            if _stretch(s, lo, hi) < hi:
                if frames == 0 or kind[frames - 1] != SPLIT:
                    kind[frames], low_column[frames], high_column[frames] = SPLIT, lo, hi
                    mark[frames], past_mark[frames] = s.count[TRAIL], s.count[PAST]
                    frames += 1
                lo, hi = _fullest_stretch(s, lo, hi)
            seen = _hash(part, s, lo, hi)
            if table[seen & mask] == seen:
                sound = False
        if sound:
            u = _lowest_below(part, s, _choose(part, s, lo, hi, rule, priority))
            kind[frames] = FORCED if part.plain and _is_base(part, s, u) else PLACE
            low_column[frames], high_column[frames], who[frames], state_hash[frames] = lo, hi, u, seen
            mark[frames], past_mark[frames] = s.count[TRAIL], s.count[PAST]
            frames += 1
            sound = _place(part, s, u)
            continue
        while not sound:
            if frames == 0:
                return DOES_NOT_FIT, s.low
            top = frames - 1
            _undo(part, s, mark[top], past_mark[top])
            lo, hi = low_column[top], high_column[top]
            if kind[top] == PLACE:
                kind[top] = LIFT
                target = _lowest_top(part, s, who[top])
                sound = target < NEVER and _raise(part, s, who[top], target)
            else:
                if kind[top] != SPLIT:
                    table[state_hash[top] & mask] = state_hash[top]
                frames -= 1


@njit(cache=True, nogil=True, inline="always")
def _begin(part: Part, lows: Ints) -> State:
    n, columns = len(lows), len(part.cap)
    unplaced, reaching = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    for u in range(n):
        for i in range(part.columns_of[u], part.columns_of[u + 1]):
            unplaced[part.columns[i]] += 1
        for column in range(part.first[u], part.last[u] - 1):
            reaching[column] += 1
    count = np.zeros(4, np.int64)
    count[QUEUE] = columns
    return State(
        lows.copy(),
        np.zeros(n, np.bool_),
        unplaced,
        reaching,
        np.zeros(columns, np.int64),
        np.zeros(columns, np.int64),
        np.zeros(columns, np.int64),
        np.zeros(columns, np.int64),
        part.members.copy(),
        np.ones(columns, np.bool_),
        np.arange(columns),
        np.empty(256 * n + 4096, np.int64),
        np.empty(256 * n + 4096, np.int64),
        np.empty((256 * n + 64 * columns + 4096, 5), np.int64),
        count,
    )


@njit(cache=True, nogil=True, inline="always")
def _trail_is_full(s: State) -> bool:
    """Whether the next node could overflow a trail."""
    return (
        s.count[TRAIL] + 4 * len(s.low) + 1024 > len(s.trail_who)
        or s.count[PAST] + 16 * len(s.load) + 1024 > len(s.past)
    )


@njit(cache=True, nogil=True, inline="always")
def _touch(s: State, column: int) -> None:
    if not s.dirty[column]:
        s.dirty[column] = True
        s.queue[s.count[QUEUE]] = column
        s.count[QUEUE] += 1


@njit(cache=True, nogil=True, inline="always")
def _raise(part: Part, s: State, u: int, low: int) -> bool:
    """Raise u's low to at least `low`; False when that passes its latest offset."""
    low += -low % part.alignment[u]
    s.trail_who[s.count[TRAIL]], s.trail_low[s.count[TRAIL]] = u, s.low[u]
    s.count[TRAIL] += 1
    s.low[u] = low
    for i in range(part.columns_of[u], part.columns_of[u + 1]):
        _touch(s, part.columns[i])
    return low <= part.latest[u]


@njit(cache=True, nogil=True, inline="always")
def _place(part: Part, s: State, u: int) -> bool:
    """Place u at its low and raise all its neighbours above it; False when one has no room left."""
    s.trail_who[s.count[TRAIL]] = -1 - u
    s.count[TRAIL] += 1
    s.placed[u] = True
    for i in range(part.columns_of[u], part.columns_of[u + 1]):
        s.unplaced[part.columns[i]] -= 1
        _touch(s, part.columns[i])
    for column in range(part.first[u], part.last[u] - 1):
        s.reaching[column] -= 1
    offset, top = s.low[u], s.low[u] + part.size[u]
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if s.placed[v] or s.low[v] >= top:
            continue
        low = top
        if part.plain and s.low[v] <= offset and _is_wider(part, v, u):
            low = _raise_wider(part, s, v, u, top)
        if not _raise(part, s, v, low):
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _undo(part: Part, s: State, mark: int, past_mark: int) -> None:
    """Take everything back to the marks. Columns that still wait to be looked at have changed since only."""
    while s.count[QUEUE] > 0:
        s.count[QUEUE] -= 1
        s.dirty[s.queue[s.count[QUEUE]]] = False
    while s.count[PAST] > past_mark:
        s.count[PAST] -= 1
        past = s.count[PAST]
        column = s.past[past, 0]
        s.load[column], s.floor[column] = s.past[past, 1], s.past[past, 2]
        s.ways[column], s.level[column] = s.past[past, 3], s.past[past, 4]
    while s.count[TRAIL] > mark:
        s.count[TRAIL] -= 1
        u = s.trail_who[s.count[TRAIL]]
        if u >= 0:
            s.low[u] = s.trail_low[s.count[TRAIL]]
            continue
        u = -1 - u
        s.placed[u] = False
        for i in range(part.columns_of[u], part.columns_of[u + 1]):
            s.unplaced[part.columns[i]] += 1
        for column in range(part.first[u], part.last[u] - 1):
            s.reaching[column] += 1


@njit(cache=True, nogil=True, inline="always")
def _is_wider(part: Part, v: int, u: int) -> bool:
    """Whether v contains u in time; of equals, the one that comes first."""
    if part.first[v] > part.first[u] or part.last[v] < part.last[u]:
        return False
    return part.first[v] < part.first[u] or part.last[v] > part.last[u] or v < u


@njit(cache=True, nogil=True, inline="always")
def _is_base(part: Part, s: State, u: int) -> bool:
    """Whether u may lie under all its unplaced neighbours: moving it there moves them only within its columns,
    and up by no more than it leaves free."""
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if not s.placed[v] and (s.low[v] < s.low[u] or not _is_wider(part, u, v)):
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _raise_wider(part: Part, s: State, v: int, u: int, top: int) -> int:
    """The low of v after u, which it contains, was placed up to `top` where v could have lain: to rest on u
    alone it would have to be exchanged with it. Just `top` when something else can come as high."""
    lowest = NEVER
    for i in range(part.near_of[v], part.near_of[v + 1]):
        w = part.near[i]
        if s.placed[w]:
            continue
        meets = part.first[w] < part.last[u] and part.first[u] < part.last[w]
        end = (max(s.low[w], top) if meets else s.low[w]) + part.size[w]
        if end <= top:
            return top
        lowest = min(lowest, end)
    return lowest


@njit(cache=True, nogil=True, inline="always")
def _lowest_top(part: Part, s: State, u: int) -> int:
    """The lowest end of an unplaced neighbour of u: what u must rest on when it does not lie at its low."""
    lowest = NEVER
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if not s.placed[v]:
            lowest = min(lowest, s.low[v] + part.size[v])
    return lowest


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _propagate(part: Part, s: State, most_raises: int) -> bool:
    """Bring all columns that changed up to date; False when one is too full."""
    s.count[RAISES] = 0
    while s.count[QUEUE] > 0:
        s.count[QUEUE] -= 1
        column = s.queue[s.count[QUEUE]]
        s.dirty[column] = False
        members = _sort_unplaced(part, s, column)
        end, total = _load(part, s, members)
        if end > part.cap[column]:
            return False
        floor = s.low[members[0]] if len(members) > 0 else 0
        slack, level = part.cap[column] - floor - total, 0
        while level < len(members) and s.low[members[level]] == floor:
            level += 1
        ways = level
        while ways < len(members) and s.low[members[ways]] <= floor + slack:
            ways += 1
        _keep_past(s, column)
        s.load[column], s.floor[column] = end, floor
        s.ways[column], s.level[column] = ways, level
        if s.count[RAISES] < most_raises and len(members) > 1:
            if not _raise_over_waste(part, s, members, slack):
                return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _keep_past(s: State, column: int) -> None:
    row = s.count[PAST]
    s.past[row, 0], s.past[row, 1] = column, s.load[column]
    s.past[row, 2], s.past[row, 3] = s.floor[column], s.ways[column]
    s.past[row, 4] = s.level[column]
    s.count[PAST] += 1


@njit(cache=True, nogil=True, inline="always")
def _sort_unplaced(part: Part, s: State, column: int) -> Ints:
    """The unplaced members of `column` by low, moved to its front; nearly in order from the last time."""
    begin, finish = part.members_of[column], part.members_of[column + 1]
    end = begin
    for i in range(begin, finish):
        u = s.members[i]
        if s.placed[u]:
            continue
        s.members[i] = s.members[end]
        place = end
        while place > begin and s.low[s.members[place - 1]] > s.low[u]:
            s.members[place] = s.members[place - 1]
            place -= 1
        s.members[place] = u
        end += 1
    return s.members[begin:end]


@njit(cache=True, nogil=True, inline="always")
def _load(part: Part, s: State, members: Ints) -> tuple[int, int]:
    """The least end of a column whose unplaced members, by low, lie one above the other; and their sum."""
    end, total = 0, 0
    for u in members:
        end = max(end, s.low[u]) + part.size[u]
        total += part.size[u]
    return end, total


@njit(cache=True, nogil=True, inline="always")
def _raise_over_waste(part: Part, s: State, members: Ints, slack: int) -> bool:
    """Raise members that lie so high above the floor that the column has not the `slack` to leave the room
    under them empty: something lies there, at least that which ends lowest."""
    one, lowest, second = -1, NEVER, NEVER
    for u in members:
        end = s.low[u] + part.size[u]
        if end < lowest:
            one, lowest, second = u, end, lowest
        elif end < second:
            second = end
    floor = s.low[members[0]]
    for i in range(len(members) - 1, 0, -1):
        u = members[i]
        if s.low[u] - floor <= slack:
            return True
        low = second if u == one else lowest
        if s.low[u] < low:
            s.count[RAISES] += 1
            if not _raise(part, s, u, low):
                return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _trim(s: State, lo: int, hi: int) -> tuple[int, int]:
    while lo < hi and s.unplaced[lo] == 0:
        lo += 1
    while lo < hi and s.unplaced[hi - 1] == 0:
        hi -= 1
    return lo, hi


@njit(cache=True, nogil=True, inline="always")
def _stretch(s: State, lo: int, hi: int) -> int:
    """The end of the columns from `lo` that unplaced buffers tie together."""
    end = lo + 1
    while end < hi and s.reaching[end - 1] > 0:
        end += 1
    return end


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _hash(part: Part, s: State, lo: int, hi: int) -> int:
    """What is left to decide in the columns `[lo, hi)`, as one number."""
    found = np.uint64(0)
    for u in range(part.begins[lo], part.begins[hi]):
        if not s.placed[u]:
            x = np.uint64(u + 1) * np.uint64(0x9E3779B97F4A7C15)
            x ^= np.uint64(s.low[u]) * np.uint64(0xC2B2AE3D27D4EB4F)
            x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            found += x ^ (x >> np.uint64(32))
    return found


@njit(cache=True, nogil=True, inline="always")
def _choose(part: Part, s: State, lo: int, hi: int, rule: int, priority: Floats) -> int:
    """The unplaced buffer of highest priority at the floor of the column that `rule` takes."""
    chosen, best, second = -1, NEVER, NEVER
    for column in range(lo, hi):
        if s.unplaced[column] == 0:
            continue
        slack = part.cap[column] - s.load[column]
        first, then = slack, s.floor[column]
        if rule == LOWEST:
            first, then = s.floor[column], slack
        elif rule == FEWEST_WAYS:
            first, then = s.ways[column] + (slack > 0), slack
        elif rule == FEWEST_LEVEL:
            first, then = s.level[column] + (slack > 0), slack
        elif rule == LOWEST_FEWEST_WAYS:
            first, then = s.floor[column], s.ways[column]
        elif rule == LOWEST_FEWEST_LEVEL:
            first, then = s.floor[column], s.level[column]
        elif rule == FULLEST_FEWEST_LEVEL:
            first, then = slack, s.level[column]
        if first < best or (first == best and then < second):
            chosen, best, second = column, first, then
    members = _sort_unplaced(part, s, chosen)
    buffer = members[0]
    for u in members[: s.level[chosen]]:
        if priority[u] > priority[buffer]:
            buffer = u
    return buffer
