"""What is placed, as the gaps that it leaves: for many buffers with lifetimes of any length.

Of thousands of rectangles live at a time only the gaps between them count, which are several times fewer,
and fewer still over a longer time. Time is cut into cells, `CELLS` cells make a block, and a binary tree
stands over all cells:

- `inside[v]`, a list of gaps for each node v: the bytes free over all of its time. A look-up over a long time
  meets these lists for a few nodes. Below the blocks' level they know only rectangles that are short, at most
  a cell long. A short rectangle mostly lies among bytes that are taken already somewhere else in a node's
  time, so few nodes change with it.
- `whole[b]`, a list for each block: the bytes that no rectangle takes which is there all through the block.
- rows: short rectangles by cell, and longer ones by block where they begin or end inside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.gap_lists import (
    MOST_WAITING,
    NO_END,
    GapLists,
    codes_of,
    gap_above,
    gaps_of,
    is_taken,
    make_gap_lists,
    take_out,
)
from memplan_engine.kernels.constructive.gap_tree.rows import Rows, add_row, make_rows, rows_that_meet
from memplan_engine.kernels.constructive.gap_tree.size_codes import size_code, write_codes
from memplan_engine.kernels.constructive.gap_tree.stretches import narrow_around, narrow_to_gaps
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

CELLS = 16
"""Cells in a block."""


class TimeTree(NamedTuple):
    """Node 1 is the root, `leaves + c` is cell c; list `2 * leaves + b` is `whole[b]`."""

    cell: int
    sections: int
    leaves: int
    lists: GapLists
    short: Rows
    long: Rows
    meeting: Ints


@kernel
def make_tree(starts: Ints, ends: Ints, cell: int) -> tuple[TimeTree, Ints]:
    """Nothing placed yet, with room for the rectangles over `[starts, ends)`; and the pool of all gaps."""
    sections = max(1, ends.max()) if len(ends) else 1
    leaves = CELLS
    while leaves * cell < sections:
        leaves *= 2
    block = cell * CELLS
    short, long = np.zeros(leaves, dtype=np.int64), np.zeros(leaves // CELLS, dtype=np.int64)
    for piece in range(len(starts)):
        start, end = starts[piece], _to_the_end(ends[piece], sections, block)
        if end - start <= cell:
            short[start // cell] += 1
            short[(end - 1) // cell] += start // cell < (end - 1) // cell
        else:
            long[start // block] += 1
            long[(end - 1) // block] += start // block < (end - 1) // block
    lists, pool = make_gap_lists(2 * leaves + leaves // CELLS)
    for whole in range(2 * leaves, 2 * leaves + leaves // CELLS):
        codes_of(lists, pool, whole)[0] = size_code(NO_END)
    most = long.max() + max(2 * short.max(), CELLS * short.max()) + 1
    return TimeTree(
        cell,
        sections,
        leaves,
        lists,
        make_rows(short),
        make_rows(long),
        np.empty(most, dtype=np.int64),
    ), pool


@kernel
def _to_the_end(end: int, sections: int, block: int) -> int:
    """What is there to the end of time is there to the end of its last block."""
    return end if end < sections else -(-end // block) * block


@kernel
def add_rectangle(tree: TimeTree, pool: Ints, start: int, end: int, low: int, high: int) -> Ints:
    """Place a rectangle over the sections `[start, end)` and the bytes `[low, high)`; gives the pool."""
    end = _to_the_end(end, tree.sections, tree.cell * CELLS)
    left, right = tree.leaves + start // tree.cell, tree.leaves + (end - 1) // tree.cell
    if end - start <= tree.cell:
        for leaf in range(left, right + 1):
            add_row(tree.short, leaf - tree.leaves, start, end, low, high, 0)
    else:
        left, right = left // CELLS, right // CELLS
        pool = _add_to_blocks(tree, pool, start, end, low, high)
    while left < right:
        for node in range(left, right + 1):
            pool = take_out(tree.lists, pool, node, low, high)
        left, right = left // 2, right // 2
    # What a node has not free, no node above it has.
    while left >= 1 and not is_taken(tree.lists, pool, left, low, high):
        pool = take_out(tree.lists, pool, left, low, high)
        left //= 2
    return pool


@kernel
def _add_to_blocks(tree: TimeTree, pool: Ints, start: int, end: int, low: int, high: int) -> Ints:
    width = tree.cell * CELLS
    for block in range(start // width, (end - 1) // width + 1):
        whole = 2 * tree.leaves + block
        if start <= block * width and (block + 1) * width <= end:
            settles = tree.lists.waiting[whole] == MOST_WAITING
            pool = take_out(tree.lists, pool, whole, low, high)
            if settles:
                gaps = gaps_of(tree.lists, pool, whole)
                write_codes(gaps[0], gaps[1], codes_of(tree.lists, pool, whole))
                _find_gaps_of_rows(tree, gaps[1], block)
        else:
            gap = gap_above(gaps_of(tree.lists, pool, whole)[1], low)
            add_row(tree.long, block, start, end, low, high, gap)
    return pool


@kernel
def _find_gaps_of_rows(tree: TimeTree, gap_high: Ints, block: int) -> None:
    rows, gap = tree.long, 0
    for row in range(rows.first[block], rows.first[block] + rows.counts[block]):
        while gap_high[gap] <= rows.low[row]:
            gap += 1
        rows.gap[row] = gap


@kernel
def narrow_to_time(
    tree: TimeTree, pool: Ints, old: Ints, new: Ints, count: int, start: int, end: int, below: int, above: int
) -> tuple[Ints, Ints, int]:
    """Leave the stretches at which a piece `[below, above)` meets nothing in the sections `[start, end)`."""
    cell, block = tree.cell, tree.cell * CELLS
    end = _to_the_end(end, tree.sections, block)
    nodes = _nodes_of(tree.leaves - (-start // cell), tree.leaves + end // cell)
    for node in nodes[::-1]:
        old, new, count = _narrow_to_list(tree, pool, old, new, count, node, below, above)
    for one in (start // block, (end - 1) // block):
        if start > one * block or end < (one + 1) * block:
            whole = 2 * tree.leaves + one
            old, new, count = _narrow_to_list(tree, pool, old, new, count, whole, below, above)
            old, new, count = _narrow_around_rows(
                tree.long, one, tree.meeting, old, new, count, start, end, below, above
            )
        if one == (end - 1) // block:
            break
    for one in (start // cell, (end - 1) // cell):
        if start > one * cell or end < (one + 1) * cell:
            old, new, count = _narrow_around_rows(
                tree.short, one, tree.meeting, old, new, count, start, end, below, above
            )
        if one == (end - 1) // cell:
            break
    return old, new, count


@kernel
def _nodes_of(left: int, right: int) -> Ints:
    """The fewest nodes that make up the leaves `[left, right)`, the ones over longer times last."""
    nodes, many = np.empty(128, dtype=np.int64), 0
    while left < right:
        if left & 1:
            nodes[many] = left
            left += 1
            many += 1
        if right & 1:
            right -= 1
            nodes[many] = right
            many += 1
        left >>= 1
        right >>= 1
    return nodes[:many]


@kernel
def _narrow_to_list(
    tree: TimeTree, pool: Ints, old: Ints, new: Ints, count: int, one: int, below: int, above: int
) -> tuple[Ints, Ints, int]:
    lists, waiting = tree.lists, tree.lists.waiting[one]
    old, new, count = narrow_to_gaps(old, new, count, gaps_of(lists, pool, one), below, above)
    wait_low, wait_high = lists.wait_low[one, :waiting], lists.wait_high[one, :waiting]
    return narrow_around(old, new, count, wait_low, wait_high, below, above)


@kernel
def _narrow_around_rows(
    rows: Rows,
    part: int,
    meeting: Ints,
    old: Ints,
    new: Ints,
    count: int,
    start: int,
    end: int,
    below: int,
    above: int,
) -> tuple[Ints, Ints, int]:
    many = rows_that_meet(rows, part, start, end, meeting)
    low, high = rows.low[meeting[:many]], rows.high[meeting[:many]]
    return narrow_around(old, new, count, low, high, below, above)
