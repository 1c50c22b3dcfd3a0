"""A problem cut into pieces and sections, worked out once for as many placements as are wanted."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.kernels.constructive import placed
from memplan_engine.kernels.constructive.gap_tree import effort
from memplan_engine.pieces import Pieces
from memplan_engine.problem import Problem
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


def make_timeline(problem: Problem) -> Timeline:
    """The timeline of `problem`: O(n log n), once a problem."""
    return problem.once(_timeline)


def _timeline(problem: Problem) -> Timeline:
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    width = int(placed.cell_width(sections.first, sections.last, len(sections)))
    cell = int(effort.tree_cell(sections.first, sections.last, len(sections), width))
    return Timeline(problem, pieces, sections, width, cell)
