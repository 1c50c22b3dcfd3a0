"""The checker's rule for shared objects. Shares no code with the strategies."""

from __future__ import annotations

import numpy as np

from memplan_engine.problem import Ints, Problem

Span = tuple[int, int]
Breach = tuple[tuple[str, ...], str, Span | None, Span | None]
"""The buffers by name, what is wrong, the steps and the bytes."""


def check_objects(problem: Problem, offsets: Ints, objects: Ints) -> tuple[list[Breach], int]:
    """What is wrong with the objects of a placement, and how often.

    Objects are numbered 0 … k − 1 without a gap; two buffers of one object are never alive together, not in
    their gaps either; an object reaches from the first to the last byte of its buffers, and no other buffer
    lies in there. O(n log n).
    """
    if len(objects) != len(problem):
        return [((), f"{len(objects)} objects for {len(problem)} buffers", None, None)], 1
    distinct = np.unique(objects)
    if not np.array_equal(distinct, np.arange(len(distinct))):
        message = "objects that are not numbered 0, 1, 2 … without a gap"
        return [((), message, None, None)], 1
    together, apart = _alive_together(problem, objects), _in_the_way(problem, offsets, objects)
    return [*together, *apart], len(together) + len(apart)


def _alive_together(problem: Problem, objects: Ints) -> list[Breach]:
    """Neighbours in time of one object that are alive together: if any two are, two neighbours are."""
    order = np.lexsort((problem.start, objects))
    one, other = order[:-1], order[1:]
    breaks = (objects[one] == objects[other]) & (problem.start[other] < problem.end[one])
    found: list[Breach] = []
    for first, second in zip(one[breaks].tolist(), other[breaks].tolist(), strict=True):
        steps = int(problem.start[second]), int(min(problem.end[first], problem.end[second]))
        names = problem.names[first], problem.names[second]
        message = (
            f"{names[0]} and {names[1]} share object {int(objects[first])} "
            f"and are alive together at steps {steps[0]}–{steps[1] - 1}"
        )
        found.append((names, message, steps, None))
    return found


def _in_the_way(problem: Problem, offsets: Ints, objects: Ints) -> list[Breach]:
    """Objects that reach into the one below, each with a buffer of both."""
    count = int(objects.max(initial=-1)) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    filled = problem.size > 0
    np.minimum.at(low, objects[filled], offsets[filled])
    np.maximum.at(high, objects[filled], (offsets + problem.size)[filled])
    by_low = np.argsort(low, kind="stable")
    by_low = by_low[high[by_low] >= 0]
    found: list[Breach] = []
    reach = -1
    for chosen in by_low.tolist():
        if reach >= 0 and low[chosen] < high[reach]:
            top = np.flatnonzero(filled & (objects == reach) & (offsets + problem.size == high[reach]))
            bottom = np.flatnonzero(filled & (objects == chosen) & (offsets == low[chosen]))
            names = problem.names[top[0]], problem.names[bottom[0]]
            shared = int(low[chosen]), int(min(high[reach], high[chosen]))
            message = (
                f"object {chosen} with {names[1]} reaches into object {reach} with {names[0]} "
                f"in bytes {shared[0]}–{shared[1] - 1}"
            )
            found.append((names, message, None, shared))
        if reach < 0 or high[chosen] > high[reach]:
            reach = chosen
    return found
