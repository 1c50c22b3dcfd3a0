"""Orders improved by moving blocks of units. A move is worked out on the places between the old and the new
one of the block: before and behind them the same units have run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.flow import ENDLESS
from memplan_engine.kernels.order.walk import replay_order
from memplan_engine.kernels.types import Flags, Ints

LONGEST_BLOCK = 16
"""Units that are moved together at most; longer ones hardly ever may move at all."""
NEVER = ENDLESS
"""The place of the last user of what is returned."""


class Placed(NamedTuple):
    """An order, and what follows from it: the `place` of each unit, the live bytes `during` and `after` each
    place, and of each storage the place of the `last` to touch it. `dead` are the bytes that each unit makes
    for nobody. The trials are the same of a move that is looked at, where it changes something; `best` is
    the best order so far."""

    order: Ints
    place: Ints
    during: Ints
    after: Ints
    last: Ints
    dead: Ints
    trial: Ints
    trial_last: Ints
    trial_during: Ints
    trial_after: Ints
    best: Ints


@kernel
def move_blocks(
    o: OrderArrays, order: Ints, low: int, tries: int, heat: float, seed: int, stop: Flags
) -> Ints:
    """The best order met in `tries` random moves of blocks of `order` to other places.

    Of an order count the bytes above `low` summed over all steps. Without `heat` a move is kept that passes
    the peak nowhere and either does not raise this sum or takes all the places that it changes below the
    peak, one of which was at it: repeated layers have the peak at many places. With it moves are annealed
    (Kirkpatrick, Gelatt and Vecchi 1983): the sum may rise, whatever the peak, by `heat` times the gap
    between peak and `low` on the average at first, by nothing at the end.
    """
    p = placed(o, order)
    move(o, p, low, tries, heat, seed, stop)
    return p.best


@kernel
def placed(o: OrderArrays, order: Ints) -> Placed:
    """`order` with what follows from it."""
    n, m = len(order), len(o.size)
    p = Placed(
        order.copy(), np.empty(n, np.int64), replay_order(o, order), np.empty(n, np.int64),
        np.empty(m, np.int64), np.zeros(n, np.int64),
        np.empty(n, np.int64), np.empty(m, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
        order.copy(),
    )  # fmt: skip
    for i in range(n):
        p.place[order[i]] = i
    for s in range(m):
        made = p.place[o.maker[s]]
        p.last[s] = NEVER if o.kept[s] else made
        for u in o.users[o.users_of[s] : o.users_of[s + 1]]:
            p.last[s] = max(p.last[s], p.place[u])
        if p.last[s] == made:
            p.dead[o.maker[s]] += o.size[s]
    live = 0
    for i in range(n):
        v = order[i]
        live += o.out[v] - p.dead[v]
        for s in o.used[o.used_of[v] : o.used_of[v + 1]]:
            if p.last[s] == i:
                live -= o.size[s]
        p.after[i] = live
    return p


@kernel(borrows=True)
def move(o: OrderArrays, p: Placed, low: int, tries: int, heat: float, seed: int, stop: Flags) -> None:
    """As `move_blocks`, of an order that is placed."""
    np.random.seed(seed)
    n, peak = len(p.order), _worst(p.during, 0, len(p.order))
    best, degree = peak, heat * (peak - low)
    for number in range(tries):
        if stop[0] or best <= low:
            break
        begin = np.random.randint(n)
        end = min(n, begin + 1 + np.random.randint(LONGEST_BLOCK))
        first, last = _range_of(o, p, begin, end)
        to = first + np.random.randint(last - first + 1)
        if to == begin:
            continue
        # From here to there places get other units.
        here, there = min(begin, to), max(end, to + end - begin)
        _place_block(p, begin, end, to)
        worst, more = _weigh(o, p, here, there, low, ENDLESS if heat > 0 else peak)
        room = -degree * (1 - number / tries) * np.log(1 - np.random.random()) if heat > 0 else 0.0
        if worst > peak and heat == 0:
            continue
        had_peak = _worst(p.during, here, there) == peak
        if more > room and not (worst < peak and had_peak and heat == 0):
            continue
        _keep(o, p, here, there)
        if worst >= peak:
            peak = worst
        elif had_peak:
            peak = _worst(p.during, 0, n)
        if peak < best:
            best = peak
            for i in range(n):
                p.best[i] = p.order[i]
    if heat == 0:
        for i in range(n):
            p.best[i] = p.order[i]


@kernel(borrows=True)
def _worst(during: Ints, first: int, last: int) -> int:
    worst = 0
    for i in range(first, last):
        worst = max(worst, during[i])
    return worst


@kernel(borrows=True)
def _range_of(o: OrderArrays, p: Placed, begin: int, end: int) -> tuple[int, int]:
    """The first and the last place at which the block `[begin, end)` may begin, among the other units."""
    first, last = 0, len(p.order) - (end - begin)
    for place in range(begin, end):
        v = p.order[place]
        for i in range(o.before_of[v], o.before_of[v + 1]):
            at = p.place[o.before[i]]
            if at < begin:
                first = max(first, at + 1)
        for i in range(o.after_of[v], o.after_of[v + 1]):
            at = p.place[o.after[i]]
            if at >= end:
                last = min(last, at - (end - begin))
    return first, last


@kernel(borrows=True)
def _place_block(p: Placed, begin: int, end: int, to: int) -> None:
    """Put the order with the block `[begin, end)` at `to` into `trial`, at the places that change."""
    i, length = to, end - begin
    if to > begin:
        i = begin
        for place in range(end, to + length):
            p.trial[i] = p.order[place]
            i += 1
    for place in range(begin, end):
        p.trial[i] = p.order[place]
        i += 1
    if to < begin:
        for place in range(to, begin):
            p.trial[i] = p.order[place]
            i += 1


@kernel(borrows=True)
def _weigh(o: OrderArrays, p: Placed, here: int, there: int, low: int, limit: int) -> tuple[int, int]:
    """The worst of the live bytes at the places `[here, there)` in the order of `trial`, and how many more
    of them there are above `low` in all; at the first that passes `limit` it ends."""
    for i in range(here, there):
        v = p.trial[i]
        for at in range(o.used_of[v], o.used_of[v + 1]):
            p.trial_last[o.used[at]] = i
    live, worst, more = p.after[here - 1] if here else 0, 0, 0
    for i in range(here, there):
        v = p.trial[i]
        rise, freed = o.out[v], p.dead[v]
        for at in range(o.over_of[v], o.over_of[v + 1]):
            if _last_within(p, o.over[at], here, there) == i:
                rise = 0
        for at in range(o.used_of[v], o.used_of[v + 1]):
            if _last_within(p, o.used[at], here, there) == i:
                freed += o.size[o.used[at]]
        worst = max(worst, live + rise)
        if worst > limit:
            break
        p.trial_during[i] = live + rise
        live += o.out[v] - freed
        p.trial_after[i] = live
        more += max(p.trial_during[i] - low, 0) - max(p.during[i] - low, 0)
    return worst, more


@kernel(borrows=True)
def _last_within(p: Placed, s: int, here: int, there: int) -> int:
    """The place in `trial` of the last to touch the storage s. Who is last within `[here, there)` stays
    there, and all who might take its place are in `trial`."""
    last = p.last[s]
    return p.trial_last[s] if here <= last < there else last


@kernel(borrows=True)
def _keep(o: OrderArrays, p: Placed, here: int, there: int) -> None:
    """Make the trial the order."""
    for i in range(here, there):
        v = p.trial[i]
        for at in range(o.used_of[v], o.used_of[v + 1]):
            s = o.used[at]
            p.last[s] = _last_within(p, s, here, there)
    for i in range(here, there):
        v = p.trial[i]
        p.order[i], p.place[v] = v, i
        p.during[i], p.after[i] = p.trial_during[i], p.trial_after[i]
