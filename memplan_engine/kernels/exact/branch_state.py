"""What branch and bound has decided: placing, raising, taking back, and what follows from each.

The state of `branch`, apart from its choices. Everything is inlined there: a call for each raise would cost
more than the raise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

TRAIL, PAST, QUEUE, RAISES, CONFLICT, AREA = range(6)
"""Rows of `State.counts`; CONFLICT is the clique in which a branch has ended, or NOWHERE, AREA how many units
of the cliques are placed."""
NOWHERE = -1
NEVER = 2**62


class Part(NamedTuple):
    """An independent part of a problem; offsets and sizes in units. Buffers are in order of `first`.

    first, last: the cliques `[first, last)` of each buffer's lifetime; size, alignment, latest: in units;
    latest is the highest offset allowed, for fixed buffers their offset. cliques: those that a buffer really
    holds, from `cliques_of[u]` to `cliques_of[u + 1]`. near: its neighbours in time, likewise. members: the
    buffers of each clique. begins: the first buffer of each clique. cap: where each clique ends. plain: no
    gaps, fixed offsets or alignments, so that the exchange rules hold.
    """

    first: Ints
    last: Ints
    size: Ints
    alignment: Ints
    latest: Ints
    cliques_of: Ints
    cliques: Ints
    near_of: Ints
    near: Ints
    members_of: Ints
    members: Ints
    begins: Ints
    cap: Ints
    plain: bool


class State(NamedTuple):
    """What is decided: per buffer `low` and `placed`; per clique how many are unplaced, how many of them
    reach into the next, the least end (`load`), the lowest low (`floor`), how many lie there
    (`level`), and how many may be the lowest in the end (`ways`).
    What must be undone stands on two trails: buffers raised or placed, and `past` values of cliques."""

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
    counts: Ints


@kernel(inline=True)
def begin(part: Part, lows: Ints) -> State:
    """Nothing placed, every clique still to be looked at."""
    n, cliques = len(lows), len(part.cap)
    unplaced, reaching = np.zeros(cliques, np.int64), np.zeros(cliques, np.int64)
    for u in range(n):
        for i in range(part.cliques_of[u], part.cliques_of[u + 1]):
            unplaced[part.cliques[i]] += 1
        for clique in range(part.first[u], part.last[u] - 1):
            reaching[clique] += 1
    count = np.zeros(6, np.int64)
    count[QUEUE], count[CONFLICT] = cliques, NOWHERE
    return State(
        lows.copy(),
        np.zeros(n, np.bool_),
        unplaced,
        reaching,
        np.zeros(cliques, np.int64),
        np.zeros(cliques, np.int64),
        np.zeros(cliques, np.int64),
        np.zeros(cliques, np.int64),
        part.members.copy(),
        np.ones(cliques, np.bool_),
        np.arange(cliques),
        np.empty(256 * n + 4096, np.int64),
        np.empty(256 * n + 4096, np.int64),
        np.empty((256 * n + 64 * cliques + 4096, 5), np.int64),
        count,
    )


@kernel(inline=True)
def trail_is_full(s: State) -> bool:
    """Whether the next node could overflow a trail."""
    return s.counts[TRAIL] + 4 * len(s.low) + 1024 > len(s.trail_who) or s.counts[PAST] + 16 * len(
        s.load
    ) + 1024 > len(s.past)


@kernel(inline=True)
def _touch(s: State, clique: int) -> None:
    if not s.dirty[clique]:
        s.dirty[clique] = True
        s.queue[s.counts[QUEUE]] = clique
        s.counts[QUEUE] += 1


@kernel(inline=True)
def raise_low(part: Part, s: State, u: int, low: int) -> bool:
    """Raise u's low to at least `low`; False when that passes its latest offset."""
    low += -low % part.alignment[u]
    s.trail_who[s.counts[TRAIL]], s.trail_low[s.counts[TRAIL]] = u, s.low[u]
    s.counts[TRAIL] += 1
    s.low[u] = low
    for i in range(part.cliques_of[u], part.cliques_of[u + 1]):
        _touch(s, part.cliques[i])
    return low <= part.latest[u]


@kernel(inline=True)
def area(part: Part, u: int) -> int:
    """The units that u takes in all its cliques."""
    return part.size[u] * (part.cliques_of[u + 1] - part.cliques_of[u])


@kernel(inline=True)
def place(part: Part, s: State, u: int) -> bool:
    """Place u at its low and raise all its neighbours above it; False when one has no room left."""
    s.trail_who[s.counts[TRAIL]] = -1 - u
    s.counts[TRAIL] += 1
    s.placed[u] = True
    s.counts[AREA] += area(part, u)
    for i in range(part.cliques_of[u], part.cliques_of[u + 1]):
        s.unplaced[part.cliques[i]] -= 1
        _touch(s, part.cliques[i])
    for clique in range(part.first[u], part.last[u] - 1):
        s.reaching[clique] -= 1
    offset, top = s.low[u], s.low[u] + part.size[u]
    for i in range(part.near_of[u], part.near_of[u + 1]):
        v = part.near[i]
        if s.placed[v] or s.low[v] >= top:
            continue
        low = top
        if part.plain and s.low[v] <= offset and is_wider(part, v, u):
            low = _raise_wider(part, s, v, u, top)
        if not raise_low(part, s, v, low):
            s.counts[CONFLICT] = part.cliques[part.cliques_of[v]]
            return False
    return True


@kernel(inline=True)
def undo(part: Part, s: State, mark: int, past_mark: int) -> None:
    """Take everything back to the marks. Cliques that still wait to be looked at have changed since only."""
    while s.counts[QUEUE] > 0:
        s.counts[QUEUE] -= 1
        s.dirty[s.queue[s.counts[QUEUE]]] = False
    while s.counts[PAST] > past_mark:
        s.counts[PAST] -= 1
        past = s.counts[PAST]
        clique = s.past[past, 0]
        s.load[clique], s.floor[clique] = s.past[past, 1], s.past[past, 2]
        s.ways[clique], s.level[clique] = s.past[past, 3], s.past[past, 4]
    while s.counts[TRAIL] > mark:
        s.counts[TRAIL] -= 1
        u = s.trail_who[s.counts[TRAIL]]
        if u >= 0:
            s.low[u] = s.trail_low[s.counts[TRAIL]]
            continue
        u = -1 - u
        s.placed[u] = False
        s.counts[AREA] -= area(part, u)
        for i in range(part.cliques_of[u], part.cliques_of[u + 1]):
            s.unplaced[part.cliques[i]] += 1
        for clique in range(part.first[u], part.last[u] - 1):
            s.reaching[clique] += 1


@kernel(inline=True)
def is_wider(part: Part, v: int, u: int) -> bool:
    """Whether v contains u in time; of equals, the one that comes first."""
    if part.first[v] > part.first[u] or part.last[v] < part.last[u]:
        return False
    return part.first[v] < part.first[u] or part.last[v] > part.last[u] or v < u


@kernel(inline=True)
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


@kernel(inline=True)
def propagate(part: Part, s: State, most_raises: int) -> bool:
    """Bring all cliques that changed up to date; False when one is too full."""
    s.counts[RAISES] = 0
    while s.counts[QUEUE] > 0:
        s.counts[QUEUE] -= 1
        clique = s.queue[s.counts[QUEUE]]
        s.dirty[clique] = False
        members, end, total = sort_unplaced(part, s, clique)
        if end > part.cap[clique]:
            s.counts[CONFLICT] = clique
            return False
        floor = s.low[members[0]] if len(members) > 0 else 0
        slack, level = part.cap[clique] - floor - total, 0
        while level < len(members) and s.low[members[level]] == floor:
            level += 1
        ways = level
        while ways < len(members) and s.low[members[ways]] <= floor + slack:
            ways += 1
        _keep_past(s, clique)
        s.load[clique], s.floor[clique] = end, floor
        s.ways[clique], s.level[clique] = ways, level
        if s.counts[RAISES] >= most_raises or len(members) < 2:
            continue
        if not _raise_over_waste(part, s, members, slack):
            s.counts[CONFLICT] = clique
            return False
    return True


@kernel(inline=True)
def _keep_past(s: State, clique: int) -> None:
    row = s.counts[PAST]
    s.past[row, 0], s.past[row, 1] = clique, s.load[clique]
    s.past[row, 2], s.past[row, 3] = s.floor[clique], s.ways[clique]
    s.past[row, 4] = s.level[clique]
    s.counts[PAST] += 1


@kernel(inline=True)
def sort_unplaced(part: Part, s: State, clique: int) -> tuple[Ints, int, int]:
    """The unplaced members of `clique` by low, moved to its front; nearly in order from the last time. Also
    where they end at least, one above the other, and their sum."""
    begin, finish = part.members_of[clique], part.members_of[clique] + s.unplaced[clique]
    end, i, highest, top, total = begin, begin, -1, 0, 0
    in_order: bool = True
    while end < finish:
        u = s.members[i]
        if not s.placed[u]:
            low, place = s.low[u], end
            s.members[i] = s.members[end]
            if low < highest:
                in_order = False
                while place > begin and s.low[s.members[place - 1]] > low:
                    s.members[place] = s.members[place - 1]
                    place -= 1
            else:
                highest = low
            s.members[place] = u
            top = max(top, low) + part.size[u]
            total += part.size[u]
            end += 1
        i += 1
    members = s.members[begin:finish]
    if not in_order:
        top = 0
        for u in members:
            top = max(top, s.low[u]) + part.size[u]
    return members, top, total


@kernel(inline=True)
def _raise_over_waste(part: Part, s: State, members: Ints, slack: int) -> bool:
    """Raise members that lie so high above the floor that the clique has not the `slack` to leave the room
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
            s.counts[RAISES] += 1
            if not raise_low(part, s, u, low):
                return False
    return True
