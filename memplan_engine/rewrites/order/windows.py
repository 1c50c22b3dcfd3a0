"""A part of an order as a question of its own: what runs before it stays before, what runs after it after."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.order_problem import OrderProblem, listed, turned

FIRST = 0
"""The unit of a window that stands for all that runs before it."""


def window(problem: OrderProblem, order: Ints, first: int, last: int) -> OrderProblem:
    """The question in which order the units at places `first` to `last` − 1 of `order` run.

    Unit FIRST makes what is live before them, unit i + 1 is the one at place first + i. What is needed behind
    the window counts as returned. An order of the window with FIRST in front, put into its place, keeps what
    the whole must keep, and has the same live bytes in both.
    """
    o, units = problem.arrays, order[first:last]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    number = {unit: here for here, unit in enumerate(units.tolist(), start=FIRST + 1)}
    last_use = np.full(len(o.size), -1)
    np.maximum.at(last_use, np.repeat(np.arange(len(o.size)), np.diff(o.users_of)), place[o.users])
    made_at, kept = place[o.maker], o.kept | (last_use >= last)
    there = (made_at < first) & (kept | (last_use >= first))
    used_here = np.zeros(len(o.size), np.bool_)
    for unit in units:
        used_here[_of(o.used_of, o.used, unit)] = True
    mine = np.flatnonzero((there & used_here) | ((made_at >= first) & (made_at < last)))
    known = {storage: here for here, storage in enumerate(mine.tolist())}
    # What is there and not touched is one storage.
    aside = int(o.size[there & ~used_here].sum())
    size = np.append(o.size[mine], aside)
    maker = [*(number.get(unit, FIRST) for unit in o.maker[mine].tolist()), FIRST]
    before: list[list[int]] = [[]]
    used: list[list[int]] = [[]]
    over: list[list[int]] = [[]]
    for unit in units:
        waits = [number[other] for other in _of(o.before_of, o.before, unit).tolist() if other in number]
        before.append(waits or [FIRST])
        used.append([known[each] for each in _of(o.used_of, o.used, unit).tolist() if each in known])
        over.append([known[each] for each in _of(o.over_of, o.over, unit).tolist() if each in known])
    made = turned([[unit] for unit in maker], len(units) + 1)
    arrays = OrderArrays(
        *listed(before),
        *listed(turned(before, len(before))),
        *listed(made),
        *listed(used),
        *listed(over),
        *listed(turned(used, len(size))),
        maker=np.array(maker, np.int64),
        size=size,
        kept=np.append(kept[mine], True),
        out=np.array([size[own].sum() for own in made], np.int64),
    )
    numbers = range(len(before))
    names = (*(problem.storages[storage] for storage in mine.tolist()), "")
    return OrderProblem(problem.graph, tuple((unit,) for unit in numbers), tuple(numbers), names, arrays)


def _of(starts: Ints, items: Ints, owner: int) -> Ints:
    return items[starts[owner] : starts[owner + 1]]
