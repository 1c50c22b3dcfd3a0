"""Which kernel is quicker, and how fine its cells should be: counted before anything is placed."""

from __future__ import annotations

import numpy as np

from memplan_engine.kernels.constructive.gap_tree.time_tree import CELLS
from memplan_engine.kernels.constructive.placed import rows_read
from memplan_engine.kernels.jit import kernel
from memplan_engine.kernels.types import Ints

RUNS = 0
"""Instead of a cell width: `place_in_order` is quicker than `place_in_tree`."""
MANY_ROWS = 3000.0
"""From so many rows read for one piece on, the tree is quicker (measured)."""


@kernel
def tree_cell(first: Ints, last: Ints, sections: int, width: int) -> int:
    """The cell width of the tree, in sections, for pieces `[first[p], last[p])`; RUNS if `placed` with cells
    of `width` sections is quicker."""
    length = np.sort(last - first)
    if rows_read(length, sections, width) <= MANY_ROWS * len(length):
        return RUNS
    best_cell, best_work = 1, np.inf
    cell = 1
    while cell * CELLS < 2 * sections:
        work = _tree_work(length, sections, cell)
        if work < best_work:
            best_cell, best_work = cell, work
        cell *= 2
    return best_cell


@kernel
def _tree_work(length: Ints, sections: int, cell: int) -> float:
    """The lists of gaps that long pieces change, and the rows that a look-up reads and an insertion moves."""
    pieces, block = len(length), cell * CELLS
    long = length[np.searchsorted(length, cell, side="right") :]
    changes = 3.0 * (long / block).sum()
    rows_in_block = 2.0 * len(long) * min(1.0, block / sections)
    rows_in_cell = 2.0 * (pieces - len(long)) * min(1.0, cell / sections)
    return 300.0 * changes + pieces * (0.7 * rows_in_block + 0.5 * rows_in_cell)
