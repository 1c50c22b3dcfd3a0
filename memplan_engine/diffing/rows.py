"""What changed as rows of plain values, for tables of people's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.provenance import Provenance, find_provenance
from memplan_engine.diffing.matching import HOWS, How, values_of
from memplan_engine.diffing.moment import CAUSES, Cause, Moment
from memplan_engine.diffing.regression import Change, Diff
from memplan_engine.kernels.alignment import NOBODY
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import bytes_held

Lifetime = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One buffer, matched or not. Of the side that does not have it the name is "", the lifetime (half-open,
    steps) None and the bytes 0. The labels are what people call it. `at_peak` is what it adds to Δdemand,
    bytes; `how` what the match rests on. `provenance` is the head's where there is one."""

    base: str
    head: str
    base_label: str
    head_label: str
    base_bytes: int
    head_bytes: int
    base_lifetime: Lifetime | None
    head_lifetime: Lifetime | None
    changes: tuple[Change, ...]
    at_peak: int
    how: How | None
    provenance: Provenance

    @property
    def name(self) -> str:
        """The head's name, or the base's where only that has it."""
        return self.head or self.base

    @property
    def delta(self) -> int:
        """By how many bytes it grew; all of its bytes where only one side has it."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, slots=True)
class PeakRow:
    """A buffer that holds bytes at the step that is explained, on either side; bytes. `label` is what people
    call it."""

    name: str
    label: str
    base_bytes: int
    head_bytes: int
    cause: Cause | None
    provenance: Provenance

    @property
    def delta(self) -> int:
        """How many bytes more the head holds."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """All that one module ("" for none) holds at the step that is explained, by falling difference."""

    module: str
    parts: tuple[PeakRow, ...]

    @property
    def base_bytes(self) -> int:
        """What the base holds of it."""
        return sum(part.base_bytes for part in self.parts)

    @property
    def head_bytes(self) -> int:
        """What the head holds of it."""
        return sum(part.head_bytes for part in self.parts)

    @property
    def delta(self) -> int:
        """How many bytes more the head holds."""
        return self.head_bytes - self.base_bytes


def diff_rows(diff: Diff, most: int | None = None, *, unchanged: bool = False) -> tuple[DiffRow, ...]:
    """Every buffer that changed, what adds most to Δdemand first, then by size of the change, then by size;
    the first `most` of them. With `unchanged` the others, too."""
    columns = _columns(diff)
    base, head, delta, lived, at_peak = columns
    sizes = np.maximum(values_of(diff.base.problem.size, base), values_of(diff.head.problem.size, head))
    shown = np.flatnonzero((delta != 0) | (lived != 0) | (base == NOBODY) | (head == NOBODY) | unchanged)
    order = np.lexsort((-sizes[shown], -np.abs(lived[shown]), -np.abs(delta[shown]), -np.abs(at_peak[shown])))
    provenance = find_provenance(diff.base.problem), find_provenance(diff.head.problem)
    rows = shown[order][:most]
    return tuple(
        _row(diff, provenance, *map(int, values)) for values in zip(*(c[rows] for c in columns), strict=True)
    )


def module_rows(diff: Diff, moment: Moment) -> tuple[ModuleRow, ...]:
    """What `moment` holds on both sides by module, the largest difference first, then what holds most."""
    base, head = diff.base.problem, diff.head.problem
    provenance = find_provenance(base), find_provenance(head)
    labels = buffer_names(base), buffer_names(head)
    by_module: dict[str, list[PeakRow]] = {}
    columns = (moment.base, moment.head, moment.base_held, moment.head_held, moment.cause)
    for in_base, in_head, before, after, cause in zip(*(column.tolist() for column in columns), strict=True):
        side, row = (0, in_base) if in_head == NOBODY else (1, in_head)
        part = PeakRow(
            (base, head)[side].names[row],
            labels[side][row],
            before,
            after,
            None if cause == NOBODY else CAUSES[cause],
            provenance[side][row],
        )
        by_module.setdefault(part.provenance.module, []).append(part)
    rows = [ModuleRow(module, tuple(parts)) for module, parts in by_module.items()]
    return tuple(sorted(rows, key=lambda row: (-abs(row.delta), -row.head_bytes, row.module)))


def _columns(diff: Diff) -> tuple[Ints, ...]:
    """One entry a row: the rows of base and head, the change in bytes, that of the lifetime (by its sign)
    and what it adds to Δdemand."""
    rows, moment = diff.matching.rows, diff.moment
    problems = diff.base.problem, diff.head.problem
    delta = values_of(problems[1].size, rows[1]) - values_of(problems[0].size, rows[0])
    lived = np.concatenate([np.sign(diff.lived), np.zeros(len(rows[0]) - len(diff.lived), dtype=np.int64)])
    before, after = bytes_held(problems[0], moment.base_step), bytes_held(problems[1], moment.head_step)
    return (*rows, delta, lived, values_of(after, rows[1]) - values_of(before, rows[0]))


def _row(
    diff: Diff,
    provenance: tuple[tuple[Provenance, ...], tuple[Provenance, ...]],
    base: int,
    head: int,
    delta: int,
    lived: int,
    at_peak: int,
) -> DiffRow:
    before, after = _side(diff.base.problem, base), _side(diff.head.problem, head)
    if base == NOBODY or head == NOBODY:
        changes: tuple[Change, ...] = (Change.ONLY_HEAD if base == NOBODY else Change.ONLY_BASE,)
    else:
        resized = (Change.GROWN,) if delta > 0 else (Change.SHRUNK,) if delta < 0 else ()
        moved = (Change.LONGER,) if lived > 0 else (Change.SHORTER,) if lived < 0 else ()
        changes = (*resized, *moved) or (Change.SAME,)
    how = int(diff.matching.how[base]) if base != NOBODY else NOBODY
    return DiffRow(
        before[0],
        after[0],
        before[1],
        after[1],
        before[2],
        after[2],
        before[3],
        after[3],
        changes,
        at_peak,
        None if how == NOBODY else HOWS[how],
        provenance[0][base] if head == NOBODY else provenance[1][head],
    )


def _side(problem: Problem, row: int) -> tuple[str, str, int, Lifetime | None]:
    if row == NOBODY:
        return "", "", 0, None
    lifetime = int(problem.start[row]), int(problem.end[row])
    return problem.names[row], buffer_names(problem)[row], int(problem.size[row]), lifetime


@dataclass(frozen=True, slots=True, eq=False)
class ProfileDifference:
    """Live bytes over the head's steps: stretch s covers the steps `[bounds[s], bounds[s + 1])`, in which the
    head holds `head[s]` bytes and the base, at the steps that stand for them, at most `base[s]`. For steps of
    the head before the first or behind the last one of the base, that one stands."""

    bounds: Ints
    base: Ints
    head: Ints

    @property
    def delta(self) -> Ints:
        """How many bytes more the head holds, a value a stretch."""
        return self.head - self.base


def profile_difference(diff: Diff) -> ProfileDifference:
    """The profiles of `diff` beside each other, a stretch wherever the head's live bytes may change."""
    bounds = diff.head_load.sections.bounds
    return ProfileDifference(bounds, profiles_beside(diff, diff.base_load.live), diff.head_load.live)


def profiles_beside(diff: Diff, live: Ints) -> Ints:
    """The most of `live`, bytes a section of the base, within each section of the head."""
    bounds = diff.head_load.sections.bounds
    places = np.searchsorted(diff.base_load.sections.bounds, diff.timeline.to_base(bounds), side="right") - 1
    # Beyond either end of the base its outermost step goes on: what it holds there is not freed.
    low = np.clip(places[:-1], 0, max(0, len(live) - 1))
    high = np.maximum(np.minimum(places[1:], len(live)), low + 1)
    padded = np.append(live, [0, 0])
    edges = np.column_stack([low, high]).ravel()
    return np.maximum.reduceat(padded, edges)[::2] if len(edges) else live[:0]
