"""A problem cut into pieces and sections, worked out once for as many placements as are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.kernels.constructive import placed
from memplan_engine.kernels.constructive.gap_tree import effort
from memplan_engine.pieces import Pieces
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Sections, load_of


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A problem with its pieces and sections.

    `width` and `cell` choose the kernel and how fine it divides time (`placed.cell_width`,
    `effort.tree_cell`): the tree where `cell` is not `effort.RUNS`. The offsets are the same in any case.
    """

    problem: Problem
    pieces: Pieces
    sections: Sections
    width: int
    cell: int = effort.RUNS


def kernel_columns(timeline: Timeline) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
    """What kernels take of a problem: `first` of each buffer's pieces, `start`, `end`, `low` and `high` of
    the pieces, in sections and bytes from the offset, `size` and `alignment` of the buffers."""
    problem, pieces, sections = timeline.problem, timeline.pieces, timeline.sections
    # Copies: numba compiles once for each mixture of read-only and writable arrays.
    first, start, end = np.array(pieces.first), np.array(sections.first), np.array(sections.last)
    low, high = np.array(pieces.low), np.array(pieces.high)
    return first, start, end, low, high, np.array(problem.size), np.array(problem.alignment)


def make_timeline(problem: Problem) -> Timeline:
    """The timeline of `problem`: O(n log n), once a problem."""
    return problem.once(_timeline)


def _timeline(problem: Problem) -> Timeline:
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    width = int(placed.cell_width(sections.first, sections.last, len(sections)))
    cell = int(effort.tree_cell(sections.first, sections.last, len(sections), width))
    return Timeline(problem, pieces, sections, width, cell)
