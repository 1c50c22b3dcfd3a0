"""The shared objects of a plan as plain values, for tables of people's own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memplan_engine.analysis.positional import shared_objects_bound
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan


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
