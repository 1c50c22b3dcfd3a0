"""Which buffer takes over whose memory: a minimum-cost assignment by shortest augmenting paths.

A row is a buffer that needs memory, a column one that leaves its own. Rows come in order of start, columns in
order of end, so that a row can only take the first columns: as many as have ended by then. Costs are worked
out when needed, no matrix is kept. A row without a column gets memory of its own, at the cost of its size.
"""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Flags, Ints

NOBODY = -1
MOST = np.iinfo(np.int64).max


@kernel(small=300)
def cheapest_successors(need: Ints, leave: Ints, ended: Ints, stop: Flags) -> Ints:
    """The column of each row, NOBODY for new memory, so that all memory that has to be added is least.

    Parameters
    ----------
    need: bytes of each row; leave: bytes of each column. Row r in column c adds max(0, need[r] − leave[c]),
        a row without a column adds need[r].
    ended: how many columns each row may choose from, never fewer than the row before.
    stop: one flag, raised from outside to give up; then the result is empty.

    Jonker and Volgenant's shortest augmenting paths: one row after the other, each by Dijkstra over reduced
    costs. Of equals, a column that is free wins, then the lowest.
    """
    rows, columns = len(need), len(leave)
    row_of = np.full(columns, NOBODY, dtype=np.int64)
    column_of = np.full(rows, NOBODY, dtype=np.int64)
    row_price, column_price = np.zeros(rows, dtype=np.int64), np.zeros(columns, dtype=np.int64)
    distance, parent = np.empty(columns, dtype=np.int64), np.empty(columns, dtype=np.int64)
    unseen, seen = np.empty(columns, dtype=np.int64), np.empty(columns, dtype=np.int64)
    for row in range(rows):
        if stop[0]:
            return column_of[:0]
        unseen_count, seen_count = ended[row], 0
        for column in range(unseen_count):
            distance[column], unseen[column] = MOST, column
        at, here = row, 0
        # The cheapest end of all so far in new memory, and the row that would get it.
        new, new_row = MOST, row
        while True:
            cost = here + need[at] - row_price[at]
            if cost < new:
                new, new_row = cost, at
            base, nbytes = here - row_price[at], need[at]
            for place in range(unseen_count):
                other = unseen[place]
                if other < ended[at]:
                    cost = base - column_price[other] + max(0, nbytes - leave[other])
                    if cost < distance[other]:
                        distance[other], parent[other] = cost, at
            nearest = _nearest(distance, row_of, unseen, unseen_count)
            if nearest == NOBODY or new < distance[unseen[nearest]]:
                end, column = new, NOBODY
                break
            column = unseen[nearest]
            if row_of[column] == NOBODY:
                end = distance[column]
                break
            unseen_count -= 1
            unseen[nearest] = unseen[unseen_count]
            seen[seen_count] = column
            seen_count += 1
            at, here = row_of[column], distance[column]
        for place in range(seen_count):
            other = seen[place]
            column_price[other] += distance[other] - end
            row_price[row_of[other]] += end - distance[other]
        row_price[row] += end
        _turn(row, column, new_row, row_of, column_of, parent)
    return column_of


@kernel
def _nearest(distance: Ints, row_of: Ints, unseen: Ints, count: int) -> int:
    """The place in `unseen` of the nearest column that is reached, of equals a free one, then the lowest."""
    nearest, least, is_free, lowest = NOBODY, MOST, False, MOST
    for place in range(count):
        column = unseen[place]
        if distance[column] > least or distance[column] == MOST:
            continue
        free = row_of[column] == NOBODY
        if distance[column] < least or (free and not is_free) or (free == is_free and column < lowest):
            nearest, least, is_free, lowest = place, distance[column], free, column
    return nearest


@kernel
def _turn(row: int, column: int, new_row: int, row_of: Ints, column_of: Ints, parent: Ints) -> None:
    """Turn the path from `row` to its end: every row on it gets the next column."""
    at = new_row
    if column != NOBODY:
        at = parent[column]
    while True:
        before = column_of[at]
        column_of[at] = column
        if column != NOBODY:
            row_of[column] = at
        if at == row:
            return
        column, at = before, parent[before]
