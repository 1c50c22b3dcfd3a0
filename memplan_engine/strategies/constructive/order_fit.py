"""Order × fit: the frame that all constructive strategies share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from memplan_engine.errors import PlanError
from memplan_engine.kernels.constructive import online, place, placed, slots
from memplan_engine.kernels.constructive.gap_tree import effort, tree_place
from memplan_engine.pieces import Pieces
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.profile import Sections, load_of
from memplan_engine.strategies.base import Budget, Placement

NO_LIMIT = 2**63 - 1


class Fit(StrEnum):
    """The rule for choosing a hole."""

    FIRST = "first"
    BEST = "best"
    TOP = "top"


_KERNEL_FIT = {Fit.FIRST: place.FIRST_FIT, Fit.BEST: place.BEST_FIT, Fit.TOP: place.TOP}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A problem with its pieces and sections, worked out once for as many placements as are wanted.

    `width` and `cell` choose the kernel and how fine it divides time (`placed.cell_width`,
    `effort.tree_cell`): the tree where `cell` is not `effort.RUNS`. The offsets are the same in any case.
    """

    problem: Problem
    pieces: Pieces
    sections: Sections
    width: int
    cell: int = effort.RUNS


Order = Callable[[Prepared], Ints]
"""Gives the buffers in the order in which they are placed: a permutation of 0 … n − 1."""


def prepare(problem: Problem) -> Prepared:
    """Cut `problem` into pieces and sections: O(n log n)."""
    load = load_of(problem)
    pieces, sections = load.pieces, load.sections
    width = int(placed.cell_width(sections.first, sections.last, len(sections)))
    cell = int(effort.tree_cell(sections.first, sections.last, len(sections), width))
    return Prepared(problem, pieces, sections, width, cell)


def place_by(prepared: Prepared, order: Ints, fit: Fit, budget: Budget, limit: int = NO_LIMIT) -> Ints | None:
    """Place the buffers in `order` by the rule `fit`, those with fixed offsets before all others.

    Returns the offsets in bytes, or None when the arena would pass `limit` bytes or the budget stopped it.
    """
    problem, pieces, sections = prepared.problem, prepared.pieces, prepared.sections
    if fit is Fit.FIRST and _is_online(problem, order):
        return None if budget.stopped else place_online(problem, order, budget, limit)
    is_fixed = problem.fixed[order] != FREE
    order = np.concatenate([order[is_fixed], order[~is_fixed]])
    # Copies: numba compiles once for each mixture of read-only and writable arrays.
    order_, first, start, end, low, high, size, alignment, fixed = (
        np.array(column)
        for column in (
            order,
            pieces.first,
            sections.first,
            sections.last,
            pieces.low,
            pieces.high,
            problem.size,
            problem.alignment,
            problem.fixed,
        )
    )
    in_tree = prepared.cell != effort.RUNS
    kernel = tree_place.place_in_tree if in_tree else place.place_in_order
    offsets: Ints = kernel(
        order_,
        first,
        start,
        end,
        low,
        high,
        size,
        alignment,
        fixed,
        _KERNEL_FIT[fit],
        prepared.cell if in_tree else prepared.width,
        limit,
        budget.stop,
    )
    return None if (offsets == place.UNPLACED).any() else offsets


def _is_online(problem: Problem, order: Ints) -> bool:
    """Whether `order` is that of time and every buffer is a plain rectangle: then holes can be kept."""
    return is_plain(problem) and bool((np.diff(problem.start[order]) >= 0).all())


def is_plain(problem: Problem) -> bool:
    """Whether every buffer is a rectangle without gaps that may lie anywhere."""
    return not problem.gaps and bool((problem.fixed == FREE).all())


def place_online(problem: Problem, order: Ints, budget: Budget, limit: int = NO_LIMIT) -> Ints | None:
    """First fit of plain buffers in `order`, which is by start; None as `place_by`, but however little time
    there is, only where it takes seconds."""
    offsets: Ints = online.first_fit_by_start(*_columns(problem, order), limit, budget.stop)
    return None if (offsets == online.UNPLACED).any() else offsets


def place_in_slots(problem: Problem, order: Ints) -> Ints | None:
    """Slots of fixed sizes for plain buffers in `order`, which is by start; None if they pass 2^63."""
    offsets: Ints = slots.place_in_slots(*_columns(problem, order))
    return None if (offsets == slots.UNPLACED).any() else offsets


def _columns(problem: Problem, order: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """What the kernels for plain buffers take, as copies that may be written to."""
    start, end, size, alignment = (
        np.array(column) for column in (problem.start, problem.end, problem.size, problem.alignment)
    )
    return np.array(order), start, end, size, alignment


@dataclass(frozen=True, slots=True)
class OrderFit:
    """A strategy that is one order and one fit. Subclasses name the order and choose the default fit."""

    fit: Fit = Fit.BEST

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]

    def order(self, prepared: Prepared) -> Ints:
        """The buffers in the order in which they are placed."""
        raise NotImplementedError

    def place(self, problem: Problem, budget: Budget) -> Placement:
        """Place all buffers; raises PlanError when the budget ends before the last one has its offset."""
        prepared = prepare(problem)
        offsets = place_by(prepared, self.order(prepared), self.fit, budget)
        if offsets is None:
            raise PlanError(f"{problem.name}: {self.name} was stopped before every buffer had its offset")
        return Placement(offsets)
