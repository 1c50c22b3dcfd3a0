"""Graphs whose tensors share more storages than they did: the account of it, and the draft on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import Unpack

from memplan_engine.graph import Graph, Op, Storage, Tensor
from memplan_engine.lifetimes import PlanningOptions, to_problem
from memplan_engine.problem import Gap, Problem, make_problem
from memplan_engine.rewrites.reuse.kinds import REORDERING, is_concat, is_elementwise, plain_kind
from memplan_engine.schedule import Schedule


class Reason(StrEnum):
    """Why a tensor keeps a storage of its own. Those of the first group come from the op, those of the
    second from the tensor itself, those of the third from who else needs its bytes."""

    ALREADY = "the op writes in place already"
    OF_TORCH = "torch runs the op by itself, inside another one"
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
    row_of = {name: row for row, name in enumerate(problem.names)}
    gaps = {**problem.gaps, **{row_of[name]: own for name, own in windows.items() if name in row_of and own}}
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
        basis=problem.basis,
    )


@dataclass(frozen=True, slots=True)
class Touch:
    """The op at the place `op` of the graph reads, writes or makes `tensor` at `step`."""

    step: int
    op: int
    tensor: str
    writes: bool


class Draft:
    """A graph whose storages are being merged: tensors then move house.

    `tensors` and `storages` are those that there are now, by name; `home` is where each tensor lives, `of`
    the touches of each storage, by step. `unknown` are the tensors whose layout the graph does not tell.
    """

    def __init__(self, graph: Graph, schedule: Schedule) -> None:
        self.source, self.schedule = graph, schedule
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.storages = {storage.name: storage for storage in graph.storages}
        self.unknown = unknown_layouts(graph)
        self.home = {tensor.name: tensor.storage for tensor in graph.tensors}
        self.members: dict[str, list[str]] = {storage.name: [] for storage in graph.storages}
        self.of: dict[str, list[Touch]] = {storage.name: [] for storage in graph.storages}
        for tensor in graph.tensors:
            self.members[tensor.storage].append(tensor.name)
        for index in in_order(schedule):
            op, step = graph.ops[index], schedule.step_of_op[index]
            written = set(written_by(op, self.home))
            for name in dict.fromkeys((*op.inputs, *op.mutates, *op.outputs)):
                self.of[self.home[name]].append(Touch(step, index, name, name in written))

    def graph(self) -> Graph:
        """The graph as it is now."""
        tensors = tuple(self.tensors[tensor.name] for tensor in self.source.tensors)
        storages = tuple(self.storages[s.name] for s in self.source.storages if s.name in self.storages)
        return replace(self.source, storages=storages, tensors=tensors)

    def since(self, storage: str, step: int) -> Iterator[Touch]:
        """The touches of `storage` at `step` and after it, the last one first."""
        for touch in reversed(self.of[storage]):
            if touch.step < step:
                return
            yield touch

    def merge(self, source: str, target: str) -> Storage:
        """Let the tensors of the storage `source` live in `target`; what `source` was."""
        moved = self.members.pop(source)
        self.members[target] += moved
        for name in moved:
            self.home[name] = target
            self.tensors[name] = replace(self.tensors[name], storage=target)
        own, other = self.of[target], self.of.pop(source)
        unsorted = bool(own and other and own[-1].step > other[0].step)
        own += other
        if unsorted:
            own.sort(key=lambda touch: (touch.step, touch.op))
        return self.storages.pop(source)


def in_order(schedule: Schedule) -> list[int]:
    """The places of the ops in the order in which they run; those of one step in the graph's order."""
    return sorted(range(len(schedule.step_of_op)), key=lambda index: (schedule.step_of_op[index], index))


def written_by(op: Op, home: dict[str, str]) -> tuple[str, ...]:
    """The tensors whose bytes `op` writes: what it mutates, and outputs that are no views of an input."""
    inputs = {home[name] for name in (*op.inputs, *op.mutates)}
    fresh = tuple(name for name in op.outputs if home[name] not in inputs or is_concat(op.kind))
    return (*op.mutates, *fresh)


def is_contiguous(tensor: Tensor) -> bool:
    """Whether the elements lie one after another, the last dimension running fastest."""
    return _real_strides(tensor) == _row_major(tensor.shape)


def same_layout(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have each element at the same place, counted from their first."""
    return _real_strides(one) == _real_strides(other)


def covers(tensor: Tensor, storage: Storage) -> bool:
    """Whether `tensor` shows each byte of `storage` once."""
    whole = tensor.offset == 0 and tensor.nbytes == storage.nbytes
    dense = sorted(_real_strides(tensor).values()) == sorted(_packed(tensor).values())
    return whole and dense


def unknown_layouts(graph: Graph) -> frozenset[str]:
    """Tensors whose layout the graph does not tell: a graph without any strides that has views which
    reorder, such as transposes. What elementwise ops make of these takes their layout or another's."""
    if any(tensor.strides is not None for tensor in graph.tensors):
        return frozenset()
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    unknown: set[str] = set()
    for op in graph.ops:
        inputs = {home[name] for name in op.inputs}
        for name in op.outputs:
            is_view = home[name] in inputs
            spreads = is_view or is_elementwise(op.kind)
            reorders = is_view and plain_kind(op.kind) in REORDERING
            if reorders or (spreads and unknown.intersection(op.inputs)):
                unknown.add(name)
    return frozenset(unknown)


def _real_strides(tensor: Tensor) -> dict[int, int]:
    """Dimension → stride in elements, for the dimensions of more than one element."""
    if tensor.strides is None:
        return _row_major(tensor.shape)
    return {
        dim: stride
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=True))
        if size != 1
    }


def _row_major(shape: tuple[int, ...]) -> dict[int, int]:
    return {dim: prod(shape[dim + 1 :]) for dim, size in enumerate(shape) if size != 1}


def _packed(tensor: Tensor) -> dict[int, int]:
    """The strides of a tensor without holes whose dimensions run in the order that `tensor` has them in."""
    strides = _real_strides(tensor)
    packed, step = {}, 1
    for dim in sorted(strides, key=lambda dim: (strides[dim], -dim)):
        packed[dim] = step
        step *= tensor.shape[dim]
    return packed
