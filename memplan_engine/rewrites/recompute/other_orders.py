"""Schedules in other orders of the ops, with fewer bytes above the capacity, where they come closer to what
is proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.kernels.order.block_moves import move_blocks
from memplan_engine.problem import Ints
from memplan_engine.rewrites.recompute.bound_search import BoundSearch
from memplan_engine.rewrites.recompute.recompute_problem import NEVER, RecomputeProblem
from memplan_engine.rewrites.recompute.schedules import Schedule, ScheduleSearch
from memplan_engine.strategies.base import SolveLimits

ENOUGH = 0.01
"""Of the time of all ops: a schedule that is no further from what is proved is left alone."""
MOVES, MOST_MOVES = 200, 200_000
"""Of blocks for one other order: for each op, and at most. Chosen by hand."""
HEATS = 0.0, 0.3, 8.0
"""Of the moves of one order after another: `order_search.HEATS`, and none."""
QUIET = 3
"""Orders in vain after which no more are tried; one, where none has won. Chosen by hand."""


def try_other_orders(search: ScheduleSearch, bounds: BoundSearch, capacity: int, limits: SolveLimits) -> None:
    """Keep in `search` what is found within `capacity` bytes in other orders, one after another, each from
    the best so far: until that is near to what `bounds`, of live bytes, proves, or orders no longer win."""
    quiet, won = 0, 0
    while quiet < (QUIET if won else 1) and not limits.stopped:
        best = search.best(capacity)
        if best is None or _is_near(best, bounds, capacity, limits):
            return
        problem, draw = search.problem, won + quiet
        # As they run for the first time.
        now = best.sequence[np.sort(np.unique(best.sequence, return_index=True)[1])]
        moves, heat = min(MOST_MOVES, MOVES * len(now)), HEATS[draw % len(HEATS)]
        order = move_blocks(problem.arrays, now, capacity, moves, heat, draw, limits.stop)
        found = ScheduleSearch(in_order(problem, order)).within(capacity, limits)
        if found is not None and found.extra < best.extra:
            search.found.append(Schedule(order[found.sequence], found.nbytes, found.extra))
            quiet, won = 0, won + 1
        else:
            quiet += 1


def _is_near(best: Schedule, bounds: BoundSearch, capacity: int, limits: SolveLimits) -> bool:
    """Whether `best` is as near as asked to what is proved."""
    enough = ENOUGH * bounds.cuts.problem.total
    if best.extra - bounds.known(capacity) <= enough:
        return True
    cut, _ = bounds.bound(capacity, limits)
    return best.extra - cut.least_extra(capacity) <= enough


def in_order(problem: RecomputeProblem, order: Ints) -> RecomputeProblem:
    """`problem` with its ops in another `order`, by index, in which they can run."""
    o, n = problem.arrays, len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)

    def rows(starts: Ints, items: Ints) -> tuple[Ints, Ints]:
        lengths = np.diff(starts)[order]
        new = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        shift = np.repeat(starts[:-1][order] - new[:-1], lengths)
        return new, items[np.arange(new[-1]) + shift]

    before_of, before = rows(o.before_of, o.before)
    after_of, after = rows(o.after_of, o.after)
    made_of, made = rows(o.made_of, o.made)
    used_of, used = rows(o.used_of, o.used)
    over_of, over = rows(o.over_of, o.over)
    # Those of each storage in their order.
    users = place[o.users]
    users = users[np.lexsort((users, np.repeat(np.arange(len(o.size)), np.diff(o.users_of))))]
    arrays = o._replace(
        before_of=before_of, before=place[before], after_of=after_of, after=place[after],
        made_of=made_of, made=made, used_of=used_of, used=used, over_of=over_of, over=over,
        users=users, maker=place[o.maker], out=o.out[order],
    )  # fmt: skip
    writers = place[problem.writers]
    spoiled = np.full(n, NEVER, np.int64)
    np.minimum.at(spoiled, writers[0], writers[1])
    return replace(
        problem,
        graph=replace(problem.graph, ops=tuple(problem.graph.ops[op] for op in order.tolist())),
        arrays=arrays,
        cost=problem.cost[order],
        again=problem.again[order],
        spoiled=spoiled,
        writers=writers,
        own=problem.own[order],
        members=tuple(problem.members[op] for op in order.tolist()),
    )
