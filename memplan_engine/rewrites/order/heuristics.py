"""Orders made by rules, among them the three of Inductor (`torch/_inductor/memory.py`), from what its
documentation says of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np

from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.greedy import greedy_order
from memplan_engine.problem import Ints


def least_peak_first(o: OrderArrays) -> Ints:
    """Inductor's `lpmf`: below the worst so far the unit that leaves the fewest bytes live, else the one that
    raises the worst least (Oh and Ha, DAC 2006)."""
    return greedy_order(o, 0, 0.0, 0, False)


def breadth_first(o: OrderArrays) -> Ints:
    """Inductor's `bfs`: the ready unit whose predecessors ran the earliest, as a sorted list."""
    waits, ran_at = np.diff(o.before_of).tolist(), [0] * len(o.out)
    ready: list[tuple[list[int], int]] = [([], v) for v, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, v = heapq.heappop(ready)
        ran_at[v] = len(order)
        order.append(v)
        for u in o.after[o.after_of[v] : o.after_of[v + 1]].tolist():
            waits[u] -= 1
            if waits[u] == 0:
                before = o.before[o.before_of[u] : o.before_of[u + 1]].tolist()
                heapq.heappush(ready, (sorted(ran_at[each] for each in before), u))
    return np.array(order, np.int64)


def smallest_first(o: OrderArrays) -> Ints:
    """Inductor's `dfs`: each unit behind all that it waits for, those visited first that touch the fewest
    bytes."""
    touched = [
        int(o.out[v]) + int(o.size[o.used[o.used_of[v] : o.used_of[v + 1]]].sum()) for v in range(len(o.out))
    ]
    return _behind_what_they_need(o, sorted(range(len(o.out)), key=lambda v: (touched[v], v)), _given)


def outputs_first(o: OrderArrays) -> Ints:
    """Depth first from the last unit back: of what a unit waits for, the largest output first, so that what
    is small is held while what is large is worked on."""
    last = [v for v in range(len(o.out) - 1, -1, -1) if o.after_of[v] == o.after_of[v + 1]]
    return _behind_what_they_need(o, sorted(last), lambda o, some: sorted(some, key=lambda v: -int(o.out[v])))


def latest_first(o: OrderArrays) -> Ints:
    """Depth first from the inputs on: of those that are ready, the one that has been so for the shortest
    time."""
    waits = np.diff(o.before_of).tolist()
    stack = [v for v in range(len(o.out) - 1, -1, -1) if waits[v] == 0]
    order: list[int] = []
    while stack:
        v = stack.pop()
        order.append(v)
        for u in o.after[o.after_of[v] : o.after_of[v + 1]].tolist()[::-1]:
            waits[u] -= 1
            if waits[u] == 0:
                stack.append(u)
    return np.array(order, np.int64)


INDUCTOR: dict[str, Callable[[OrderArrays], Ints]] = {
    "lpmf": least_peak_first,
    "bfs": breadth_first,
    "dfs": smallest_first,
}
"""Inductor's three by its names; it takes the best of them and of the order that it was given."""


def orders_by_rules(o: OrderArrays) -> Iterator[tuple[str, Ints]]:
    """Each rule's order with the name of the rule."""
    for name, rule in (*INDUCTOR.items(), ("outputs first", outputs_first), ("latest first", latest_first)):
        yield name, rule(o)


def _given(_: OrderArrays, some: list[int]) -> list[int]:
    return some


def _behind_what_they_need(
    o: OrderArrays, visit: list[int], sort: Callable[[OrderArrays, list[int]], list[int]]
) -> Ints:
    """Visit units in turn, each after what it waits for, that in the order which `sort` makes."""
    done, order = [False] * len(o.out), []
    for start in visit:
        stack = [] if done[start] else [(start, False)]
        while stack:
            v, needs_ran = stack.pop()
            if done[v]:
                continue
            if needs_ran:
                done[v] = True
                order.append(v)
                continue
            stack.append((v, True))
            before = o.before[o.before_of[v] : o.before_of[v + 1]].tolist()
            stack += [(u, False) for u in reversed(sort(o, before)) if not done[u]]
    return np.array(order, np.int64)
