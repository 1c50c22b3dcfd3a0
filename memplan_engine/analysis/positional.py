"""Shared objects: how small they can be at best (positional maxima and breadths, Pisarchyk and Lee 2020), and
those of a plan as plain values, for tables of people's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.kernels.shared_objects.positional import largest_kth
from memplan_engine.plan import Plan
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Sections, live_bytes, load_of


def positional_maxima(problem: Problem) -> Ints:
    """For k = 0, 1, …: the largest size (bytes) that is the k-th largest at some step; never increasing.

    As many entries as buffers are live together at most. A buffer counts over its whole lifetime, with its
    gaps, for it keeps its object in them. O(n log n).
    """
    sections = _sections(problem)
    by_size = np.argsort(-problem.size, kind="stable")
    maxima: Ints = largest_kth(by_size, sections.first, sections.last, np.array(problem.size), len(sections))
    return maxima


def shared_objects_bound(problem: Problem) -> int:
    """The sum of the positional maxima, bytes: no assignment to shared objects needs less.

    At the step of the k-th maximum k + 1 buffers of at least its size are live, each in an object of its
    own. So of the objects, largest first, the k-th is no smaller. Padding for alignment is not counted.
    """
    return int(positional_maxima(problem).sum())


def breadths(problem: Problem) -> tuple[Ints, Ints]:
    """Where breadth changes, and the breadth from there on: (steps, bytes), two arrays of equal length.

    The breadth of a step is the sum of the sizes of all buffers live there; gaps count as live.
    """
    sections = _sections(problem)
    return sections.bounds[:-1], live_bytes(sections, problem.size)


def breadth_at(problem: Problem, step: int) -> int:
    """The breadth of `step`, bytes; 0 outside the problem's steps."""
    live = (problem.start <= step) & (step < problem.end)
    return int(problem.size[live].sum())


def _sections(problem: Problem) -> Sections:
    return load_of(replace(problem, gaps={}) if problem.gaps else problem).sections


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One shared object: the bytes `[offset, offset + nbytes)` of the arena, as large as the largest of the
    `buffers` (by name, in order of time) that use it, one after the other."""

    object: int
    offset: int
    nbytes: int
    buffers: tuple[str, ...]
    busy_steps: int


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """A plan with shared objects in figures, bytes: all objects together, the bound of this family (the sum
    of the positional maxima), and the arena and bound that count for offsets."""

    objects: int
    objects_bytes: int
    objects_bound: int
    arena_bytes: int
    lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether no assignment to shared objects needs less."""
        return self.objects_bytes == self.objects_bound

    @property
    def gap(self) -> float:
        """All objects together over the bound of this family, minus 1; 0.0 when that is 0."""
        return self.objects_bytes / self.objects_bound - 1 if self.objects_bound else 0.0


def object_table(plan: Plan) -> tuple[ObjectRow, ...]:
    """A row an object, in order of offset.

    Raises
    ------
    InputError: the plan only has offsets.
    """
    if plan.objects is None:
        found = f"{plan.strategy}, a plan of offsets"
        raise InputError(plan.problem.name, "objects", found, "shared objects")
    problem, rows = plan.problem, []
    order = np.lexsort((problem.start, plan.objects))
    edges = np.flatnonzero(np.diff(plan.objects[order], prepend=-1, append=-1))
    for first, last in pairwise(edges.tolist()):
        members = order[first:last]
        low = int(plan.offsets[members].min())
        rows.append(
            ObjectRow(
                int(plan.objects[members[0]]),
                low,
                int((plan.offsets + problem.size)[members].max()) - low,
                tuple(problem.names[member] for member in members.tolist()),
                int((problem.end - problem.start)[members].sum()),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.offset, row.object)))


def object_summary(plan: Plan) -> ObjectSummary:
    """The figures of a plan with shared objects; raises InputError as `object_table` does."""
    rows = object_table(plan)
    return ObjectSummary(
        len(rows),
        sum(row.nbytes for row in rows),
        shared_objects_bound(plan.problem),
        plan.arena_bytes,
        plan.bound.nbytes,
    )
