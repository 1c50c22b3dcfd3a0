"""Repair by ejection: get every buffer below a ceiling by putting out what stands in its way.

The state is a placement of some of the buffers, all below the ceiling, and a pool of the others. A move takes
one from the pool. If some hole has room for it, it goes there; else it goes where those that must leave for
it cost least, and they join the pool. What has had to push others out becomes dearer to push out itself, so
that the same few do not take turns for ever (guided ejection search, Nagata and Bräysy 2009, carried from
vehicle routing to packing). When the pool gets no cheaper for some time, everything since its best moment is
undone. A move looks only at what is live together with one buffer: its cost does not grow with n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.search.radix import Sorter, make_sorter, sort_pairs
from memplan_engine.kernels.search.time_index import ABSENT, TimeIndex, meeting
from memplan_engine.kernels.types import Flags, Ints

Floats = NDArray[np.float64]

UNPLACED = -1
NOWHERE = 2**62
OUT, KEPT, LOGGED, MOVES, EFFORT = 0, 1, 2, 3, 4
"""Entries of `Repair.counts`: in the pool, in the pool at its best moment, logged since; since the begin:
moves made, and the neighbours that they looked at."""


class RepairParams(NamedTuple):
    """What repair goes by, whatever the problem."""

    first_fit: float = 0.5
    """How often a buffer takes the lowest hole with room; else it takes the tightest."""
    dearer: float = 0.3
    """By how much the penalty of a buffer rises each time that it must push others out."""
    noise: float = 0.3
    """What those in the way cost is raised by a random share of up to this: ties and near ties take turns."""
    shortest: int = 4
    """Moves of the shortest excursion from the best moment, before all is undone. The patience limits the
    others; the square of a random number decides: most are short, now and then one is long."""
    most_logged: int = 4096
    """Changes, and one for each buffer, that may be made since the best moment: no more are remembered."""
    enough: float = 0.95
    """To what share the weight of the pool must have fallen since the last look at the arena that it would
    give."""
    most_completed: int = 64
    """What arena the buffers of a larger pool would give on top is not looked at: it costs more than it
    finds."""


class RepairLimits(NamedTuple):
    """Of one repair, from its begin: `moves`, `effort` (neighbours looked at), and for how many moves it
    goes on from its best moment before it goes back to it."""

    moves: int
    effort: int
    patience: int


class Columns(NamedTuple):
    """The problem. By buffer: the `first` of its pieces (n + 1 entries), `size`, `alignment`, whether it is
    `held` by a fixed offset, and the `weight` of having it placed. By piece: `start` and `end` in sections,
    `low` and `high` in bytes from the offset.
    """

    first: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints
    size: Ints
    alignment: Ints
    held: Flags
    weight: Floats


class Repair(NamedTuple):
    """The state. By buffer: its `offset`, UNPLACED in the pool, and its `penalty`: how many times its
    weight it costs to put it out. `times`: which pieces are live together, and where they lie.

    `pool[: counts[OUT]]` are the buffers without a place, `kept` those at the best moment so far, and `log`
    the (buffer, offset before) of each change since. `weights`: of the pool now and at its best moment.
    `whole` holds offsets of all buffers, when a call has found a better arena. What is found at a look-up:
    the places of the neighbours, the bytes that they forbid, and these sorted by low and by high.
    """

    params: RepairParams
    columns: Columns
    times: TimeIndex
    offset: Ints
    penalty: Floats
    pool: Ints
    kept: Ints
    log: Ints
    counts: Ints
    weights: Floats
    whole: Ints
    neighbours: Ints
    neighbour_low: Ints
    neighbour_high: Ints
    by_low: Sorter
    by_high: Sorter


def make_repair(columns: Columns, times: TimeIndex, room: int, params: RepairParams) -> Repair:
    """A state with nothing placed; `room`: at least the most neighbours that a look-up can find."""
    n, room = len(columns.size), max(room, params.most_completed)
    neighbours, neighbour_low, neighbour_high = np.zeros((3, room + 1), dtype=np.int64)
    return Repair(
        params,
        columns,
        times,
        offset=np.full(n, UNPLACED, dtype=np.int64),
        penalty=np.ones(n),
        pool=np.zeros(n + 1, dtype=np.int64),
        kept=np.zeros(n + 1, dtype=np.int64),
        log=np.zeros((2 * n + params.most_logged + 2, 2), dtype=np.int64),
        counts=np.zeros(5, dtype=np.int64),
        weights=np.zeros(2),
        whole=np.full(n, UNPLACED, dtype=np.int64),
        neighbours=neighbours,
        neighbour_low=neighbour_low,
        neighbour_high=neighbour_high,
        by_low=make_sorter(room + 1),
        by_high=make_sorter(room + 1),
    )


@kernel(borrows=True)
def begin(state: Repair, offsets: Ints, ceiling: int) -> None:
    """Start from `offsets` (UNPLACED allowed): what ends above `ceiling` bytes is put out."""
    state.counts[:] = 0
    state.penalty[:] = 1.0
    state.weights[:] = 0.0
    for buffer in range(len(offsets)):
        offset = offsets[buffer]
        if (
            offset != UNPLACED
            and offset + state.columns.size[buffer] > ceiling
            and not state.columns.held[buffer]
        ):
            offset = UNPLACED
        _put(state, buffer, offset)
        if offset == UNPLACED:
            state.pool[state.counts[OUT]] = buffer
            state.counts[OUT] += 1
    _keep(state)


@kernel(borrows=True)
def _put(state: Repair, buffer: int, offset: int) -> None:
    """Write where `buffer` lies; UNPLACED for nowhere."""
    times = state.times
    state.offset[buffer] = offset
    for piece in range(state.columns.first[buffer], state.columns.first[buffer + 1]):
        place = times.place[piece]
        if place == ABSENT:
            continue
        if offset == UNPLACED:
            times.low[place] = ABSENT
        else:
            times.low[place] = offset + state.columns.low[piece]
            times.high[place] = offset + state.columns.high[piece]


@kernel(borrows=True)
def _change(state: Repair, buffer: int, offset: int) -> None:
    """Like `_put`, and remembered until the next best moment."""
    logged = state.counts[LOGGED]
    state.log[logged, 0], state.log[logged, 1] = buffer, state.offset[buffer]
    state.counts[LOGGED] += 1
    _put(state, buffer, offset)
    state.weights[0] += state.columns.weight[buffer] if offset == UNPLACED else -state.columns.weight[buffer]


@kernel(borrows=True)
def _keep(state: Repair) -> None:
    """This is the best moment so far."""
    out = state.counts[OUT]
    weight = 0.0
    for i in range(out):
        state.kept[i] = state.pool[i]
        weight += state.columns.weight[state.pool[i]]
    state.counts[KEPT], state.counts[LOGGED] = out, 0
    state.weights[:] = weight


@kernel
def _undo(state: Repair) -> None:
    """Back to the best moment."""
    for i in range(state.counts[LOGGED] - 1, -1, -1):
        _put(state, state.log[i, 0], state.log[i, 1])
    out = state.counts[KEPT]
    state.pool[:out] = state.kept[:out]
    state.counts[OUT], state.counts[LOGGED] = out, 0
    state.weights[0] = state.weights[1]


@kernel
def repair(
    state: Repair,
    ceiling: int,
    best: int,
    allowed: RepairLimits,
    seed: int,
    stop: Flags,
    counter: Ints,
) -> int:
    """Make moves below `ceiling` until something better than an arena of `best` bytes is found.

    Returns the arena in bytes of what then lies in `state.whole`, or `best` when there is nothing better.
    Ends as well when the state has had what is `allowed`, or at `stop`; then it is back at its best moment.
    """
    np.random.seed(seed)
    params, counts = state.params, state.counts
    waited, excursion, seen = 0, allowed.patience, np.inf
    while (
        counts[OUT] > 0 and counts[MOVES] < allowed.moves and counts[EFFORT] < allowed.effort and not stop[0]
    ):
        _move(state, ceiling)
        counter[0] += 1
        counts[MOVES] += 1
        waited += 1
        if state.weights[0] <= state.weights[1] * (1.0 + 1e-9) or counts[OUT] == 0:
            _keep(state)
            waited = 0
            if state.weights[1] < seen * params.enough and counts[OUT] <= params.most_completed:
                seen = state.weights[1]
                arena = _complete(state, best)
                if arena < best:
                    return arena
        elif waited >= excursion or counts[LOGGED] > len(state.columns.size) + params.most_logged:
            _undo(state)
            waited = 0
            excursion = params.shortest + int(allowed.patience * np.random.random() ** 2)
    _undo(state)
    return best


@kernel
def _complete(state: Repair, best: int) -> int:
    """The arena with the pool placed without a ceiling, largest first; its offsets are then in `whole`.

    `best` when that is no better. The state stays as it is.
    """
    out = state.counts[OUT]
    for i in range(out):
        state.by_low.key[i], state.by_low.value[i] = (
            NOWHERE - state.columns.size[state.pool[i]],
            state.pool[i],
        )
    sort_pairs(state.by_low, out)
    waiting = state.by_low.value[:out].copy()
    arena, placed = 0, 0
    for buffer in waiting:
        count = _gather(state, buffer)
        state.counts[EFFORT] += count
        _sort(state.by_low, state.neighbour_low, count)
        offset = _hole(state, buffer, count, NOWHERE, False)
        if offset + state.columns.size[buffer] >= best:
            break
        _put(state, buffer, offset)
        placed += 1
    if placed == out:
        for buffer in range(len(state.columns.size)):
            state.whole[buffer] = state.offset[buffer]
            arena = max(arena, state.offset[buffer] + state.columns.size[buffer])
    for buffer in waiting[:placed]:
        _put(state, buffer, UNPLACED)
    return arena if placed == out and arena < best else best


@kernel(borrows=True)
def _move(state: Repair, ceiling: int) -> None:
    """Give one buffer of the pool a place below `ceiling`, at the least cost."""
    out = state.counts[OUT]
    chosen = np.random.randint(out)
    buffer = state.pool[chosen]
    count = _gather(state, buffer)
    _sort(state.by_low, state.neighbour_low, count)
    state.counts[EFFORT] += count
    offset = _hole(state, buffer, count, ceiling, np.random.random() < state.params.first_fit)
    if offset == NOWHERE:
        _sort(state.by_high, state.neighbour_high, count)
        offset = _cheapest(state, buffer, count, ceiling)
        state.penalty[buffer] += state.params.dearer
        if offset == NOWHERE:
            return
    state.pool[chosen] = state.pool[out - 1]
    state.counts[OUT] = out - 1
    for i in range(count):
        if state.neighbour_low[i] < offset + state.columns.size[buffer] and offset < state.neighbour_high[i]:
            other = state.times.owner[state.neighbours[i]]
            if state.offset[other] != UNPLACED:
                _change(state, other, UNPLACED)
                state.pool[state.counts[OUT]] = other
                state.counts[OUT] += 1
    _change(state, buffer, offset)


@kernel(borrows=True)
def _gather(state: Repair, buffer: int) -> int:
    """What `buffer` meets in time, to `neighbours`, and the bytes that it forbids, to `neighbour_low` and
    `neighbour_high`.

    A piece that leaves out the bytes below its `low` or above its `high` may reach over a neighbour: with
    the neighbour's low lifted by what is left out above, and its high lowered by what is left out below, the
    buffer may be treated as if it filled its whole size.
    """
    count = 0
    for piece in range(state.columns.first[buffer], state.columns.first[buffer + 1]):
        if state.times.place[piece] == ABSENT:
            continue
        above, below = state.columns.size[buffer] - state.columns.high[piece], state.columns.low[piece]
        more = meeting(
            state.times, state.columns.start[piece], state.columns.end[piece], state.neighbours, count
        )
        for i in range(count, more):
            place = state.neighbours[i]
            low, high = state.times.low[place] + above, state.times.high[place] - below
            # One that is passed under in any case forbids nothing.
            if high > 0:
                state.neighbours[count] = place
                state.neighbour_low[count], state.neighbour_high[count] = low, high
                count += 1
    return count


@kernel(borrows=True)
def _sort(sorter: Sorter, keys: Ints, count: int) -> None:
    for i in range(count):
        sorter.key[i], sorter.value[i] = keys[i], i
    sort_pairs(sorter, count)


@kernel(borrows=True)
def _hole(state: Repair, buffer: int, count: int, ceiling: int, first: bool) -> int:
    """The offset in the smallest hole with room, or in the lowest if `first`; NOWHERE below `ceiling`."""
    size, alignment = state.columns.size[buffer], state.columns.alignment[buffer]
    chosen, tightest, reach = NOWHERE, np.iinfo(np.int64).max, 0
    for i in range(count + 1):
        until = min(ceiling, state.by_low.key[i]) if i < count else ceiling
        hole = until - reach
        if size <= hole < tightest:
            offset = reach + -reach % alignment
            if offset + size <= until:
                chosen, tightest = offset, hole
                if first:
                    break
        if i < count:
            reach = max(reach, state.neighbour_high[state.by_low.value[i]])
    return chosen


@kernel(borrows=True)
def _cheapest(state: Repair, buffer: int, count: int, ceiling: int) -> int:
    """The offset below `ceiling` at which those in the way cost least together; NOWHERE if all are held.

    Tried are the bottom, the end of each neighbour, and where `buffer` would end at the begin of each or at
    the ceiling. What stands in the way of [x, x + size) is what begins before x + size, less what ends by x:
    two sums that only grow as x does.
    """
    size, alignment = state.columns.size[buffer], state.columns.alignment[buffer]
    best, chosen = np.inf, NOWHERE
    for upwards in (True, False):
        begun, ended, cost, held = 0, 0, 0.0, 0
        for i in range(count + 1):
            if upwards:
                offset = state.by_high.key[i - 1] if i else 0
                offset += -offset % alignment
                if offset + size > ceiling:
                    break
            else:
                offset = min(ceiling, state.by_low.key[i] if i < count else ceiling) - size
                if offset < 0:
                    continue
                offset -= offset % alignment
            while begun < count and state.by_low.key[begun] < offset + size:
                other = state.times.owner[state.neighbours[state.by_low.value[begun]]]
                cost += state.columns.weight[other] * state.penalty[other]
                held += state.columns.held[other]
                begun += 1
            while ended < count and state.by_high.key[ended] <= offset:
                other = state.times.owner[state.neighbours[state.by_high.value[ended]]]
                cost -= state.columns.weight[other] * state.penalty[other]
                held -= state.columns.held[other]
                ended += 1
            if held:
                continue
            noisy = cost * (1.0 + state.params.noise * np.random.random())
            if noisy < best:
                best, chosen = noisy, offset
    return chosen
