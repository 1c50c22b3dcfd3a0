"""A small core: of buffers that a search has refuted together, few that are refuted by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from memplan_engine.bounds import Bound, BoundKind, lower_bound
from memplan_engine.problem import Ints, Problem, select
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.exact.attempts import Outcome, PartSearch
from memplan_engine.strategies.exact.independent_parts import independent
from memplan_engine.strategies.exact.stacks import is_stack

ATTEMPTS = 6
NODES = 3_000
"""Attempts, and nodes of each, after which buffers count as not refuted."""

Refuted = Callable[[Ints], bool]


def shrink_core(problem: Problem, bound: Bound, limits: SolveLimits, seconds: float) -> Bound:
    """`bound` with as few buffers in its core as `seconds` allow; only the kind CORE is changed.

    First the window is narrowed from both ends, then buffers are left out in halves, quarters and so on
    (Zeller's delta debugging): what is left cannot be placed in fewer than `bound.nbytes` bytes, either.
    """
    if bound.kind is not BoundKind.CORE or is_stack(problem, np.array(bound.core), bound.nbytes):
        return bound
    until = limits.elapsed + seconds

    def refuted(rows: Ints) -> bool:
        return limits.elapsed < until and is_refuted(problem, rows, bound.nbytes - 1, limits)

    rows = np.array(bound.core, dtype=np.int64)
    rows = _narrow(rows, problem.start, refuted)
    rows = _narrow(rows, -problem.end, refuted)
    rows = np.sort(_leave_out(rows, refuted))
    first, last = int(problem.start[rows].min()), int(problem.end[rows].max())
    return replace(bound, core=tuple(rows.tolist()), step=first, until=last)


def is_refuted(problem: Problem, rows: Ints, capacity: int, limits: SolveLimits) -> bool:
    """Whether a short search proves that the buffers `rows` alone do not fit into `capacity` bytes."""
    alone = select(problem, rows)
    if lower_bound(alone).nbytes > capacity:
        return True
    for some in independent(alone):
        search = PartSearch(alone, some, select(alone, some))
        for attempt in range(ATTEMPTS):
            outcome, _ = search.attempt(capacity, attempt, limits, NODES)
            if outcome is Outcome.DOES_NOT_FIT:
                return True
            if outcome is Outcome.FITS:
                break
    return False


def _narrow(rows: Ints, key: Ints, refuted: Refuted) -> Ints:
    """Leave out the buffers of the largest `key`, as many as can be, by bisection."""
    ordered = rows[np.argsort(key[rows], kind="stable")]
    enough, too_few = len(ordered), 0
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if refuted(ordered[:middle]):
            enough = middle
        else:
            too_few = middle
    return ordered[:enough]


def _leave_out(rows: Ints, refuted: Refuted) -> Ints:
    size = len(rows) // 2
    while size >= 1:
        place = 0
        while place < len(rows):
            fewer = np.concatenate([rows[:place], rows[place + size :]])
            if len(fewer) and refuted(fewer):
                rows = fewer
            else:
                place += size
        size //= 2
    return rows
