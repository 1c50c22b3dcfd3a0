"""A graph whose tensors share more storages than they did, and the account of how it came to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Unpack

from memplan_engine.graph import Graph
from memplan_engine.lifetimes import PlanningOptions, to_problem
from memplan_engine.problem import Gap, Problem, make_problem
from memplan_engine.schedule import Schedule


class Reason(StrEnum):
    """Why a tensor keeps a storage of its own. Those of the first group come from the op, those of the
    second from the tensor itself, those of the third from who else needs its bytes."""

    ALREADY = "the op writes in place already"
    SEVERAL_OUTPUTS = "the op makes several tensors"
    NO_OUT_VARIANT = "the op cannot write into memory that it is given"
    NO_TENSOR = "the op reads no tensor that it could write into"
    PART_OF_STORAGE = "the output is only a part of its storage"
    SYMBOLIC = "sizes are known only at the symbols' hints"
    AXIS = "the blocks do not lie one behind another: there are dimensions before the concat axis"

    INPUT = "the graph's input belongs to the caller"
    CONSTANT = "a constant must stay as it is"
    RETURNED = "the graph returns it"
    SHAPE = "another shape: it is broadcast or cast"
    ELEMENT_SIZE = "elements of another size"
    STRIDES = "another layout, or one that is not known"
    WHOLE = "it does not cover its storage, or overlaps itself"
    ALIGNMENT = "the place would not be aligned as asked"
    TWICE = "the op reads the same storage more than once"

    SAME_STEP = "another op of the same step touches it"
    READ_LATER = "it is read later"
    VIEW_READ_LATER = "another tensor of its storage is read later"
    WRITTEN_LATER = "its bytes, or the output's, are written again while the other is still read"
    PLACED = "it lies inside another concatenation"
    PEAK = "the peak would rise"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The op `op` no longer needs `nbytes` bytes of its own at `step`: in place, its output `output` lives
    where its input `tensor` did; for a concatenation, `tensor` is made `at` bytes inside `output`."""

    op: str
    kind: str
    step: int
    tensor: str
    output: str
    nbytes: int
    at: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What was left as it was: `tensor` ("" when the op itself is the cause), why, and which other op or
    tensor stands in the way, if one does. `nbytes` would have been saved."""

    op: str
    kind: str
    step: int
    tensor: str
    output: str
    nbytes: int
    reason: Reason
    other: str = ""

    def __str__(self) -> str:
        what = self.tensor or self.output
        return f"{self.op}: {what}: {self.reason}{f' ({self.other})' if self.other else ''}"


@dataclass(frozen=True, slots=True)
class Reused:
    """The outcome of a transform: `graph` has the ops, in the same order, and the tensors of the graph it
    came from; only their storages and offsets differ, and `mutates` names what is written in place.

    `windows` says, by storage, in which steps only a part of its bytes is needed (see `Gap`): storages that
    concatenations fill block by block.
    """

    graph: Graph
    schedule: Schedule
    in_place: tuple[Rewrite, ...] = ()
    concats: tuple[Rewrite, ...] = ()
    kept: tuple[Kept, ...] = ()
    windows: Mapping[str, tuple[Gap, ...]] = field(default_factory=dict)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """All of them, in-place writes first."""
        return (*self.in_place, *self.concats)


def reused_problem(
    reused: Reused,
    *,
    round_sizes: bool = False,
    **options: Unpack[PlanningOptions],
) -> Problem:
    """`to_problem` of a reused graph, with the windows of its storages. Give the alignment that the
    transform was given: blocks inside a storage were placed for it.

    Raises
    ------
    InputError: `alignment` below 1.
    """
    problem = to_problem(reused.graph, reused.schedule, round_sizes=round_sizes, **options)
    return with_windows(problem, reused.windows)


def with_windows(problem: Problem, windows: Mapping[str, tuple[Gap, ...]]) -> Problem:
    """`problem` with `windows`, which are given by buffer name; names that are no buffer are passed over."""
    row = {name: place for place, name in enumerate(problem.names)}
    gaps = {**problem.gaps, **{row[name]: own for name, own in windows.items() if name in row and own}}
    if not gaps:
        return problem
    return make_problem(
        problem.start,
        problem.end,
        problem.size,
        names=problem.names,
        alignment=problem.alignment,
        fixed=problem.fixed,
        gaps=gaps,
        steps=problem.steps,
        name=problem.name,
        origin=problem.origin,
        scope=problem.scope,
    )
