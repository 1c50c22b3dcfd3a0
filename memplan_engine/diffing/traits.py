"""What the things of two sides, buffers or ops, can be recognised by: columns of numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from memplan_engine.analysis.provenance import find_provenance
from memplan_engine.problem import Ints, Origin, Problem

Flags = NDArray[np.bool_]
FEW = 2


@dataclass(frozen=True, slots=True, eq=False)
class Things:
    """The buffers or ops of one side in order of time. `rows` are their indices; the rest is one value a
    thing: `names`, `modules`, `calls` (op kinds), `kinds` (op kind and dtype together), `shapes`, `sizes` in
    bytes, `context` what it is surrounded by: the kinds of the ops that read a buffer or that an op reads
    from, or, without a graph, the length of the lifetime in steps. Where nothing but names is known there are
    no modules, calls, kinds and shapes."""

    rows: Ints
    names: Sequence[str]
    modules: Sequence[str] | None
    calls: Sequence[Hashable] | None
    kinds: Sequence[Hashable] | None
    shapes: Sequence[tuple[Hashable, ...]] | None
    sizes: Ints
    context: Sequence[Hashable]


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """The things of both sides, base's `split` first and then head's, as columns of whole numbers: equal
    numbers, equal traits. `stem` is the name without the number at its end; `op` is kind, module and rank
    together, `call` the same without the dtype, `same` kind, module, shape and size. `telling` says whose
    name says more than a number would; `in_module` who has a module path; `has_op` who comes from an op that
    is known."""

    split: int
    name: Ints
    stem: Ints
    module: Ints
    kind: Ints
    shape: Ints
    size: Ints
    context: Ints
    op: Ints
    call: Ints
    same: Ints
    telling: Flags
    in_module: Flags
    has_op: Flags


def buffers_of(problem: Problem, with_origin: bool = True) -> Things:
    """The buffers of `problem` in order of start, with what its graph or recording knows of them."""
    rows = np.lexsort((np.arange(len(problem)), problem.start))
    order = rows.tolist()
    names, sizes = [problem.names[row] for row in order], problem.size[rows]
    context: Sequence[Hashable] = (problem.end - problem.start)[rows].tolist()
    if not with_origin or not has_origin(problem):
        return Things(rows, names, None, None, None, None, sizes, context)
    provenance = find_provenance(problem)
    origins = [provenance[row] for row in order]
    if problem.origin is not None:
        ops = {op.name: op.kind for op in problem.origin.graph.ops}
        context = [tuple(ops[reader] for reader in origin.readers) for origin in origins]
    return Things(
        rows,
        names,
        [origin.module for origin in origins],
        [origin.kind for origin in origins],
        [(origin.kind, origin.dtype) for origin in origins],
        [origin.shape for origin in origins],
        sizes,
        context,
    )


def has_origin(problem: Problem) -> bool:
    """Whether it is known what made the buffers: the ops of a graph, or callers in a recording."""
    return problem.origin is not None or problem.callers is not None


def ops_of(origin: Origin) -> Things:
    """The ops of a graph in order of their steps."""
    graph, schedule = origin.graph, origin.schedule
    steps = np.array(schedule.step_of_op, dtype=np.int64)
    rows = np.lexsort((np.arange(len(steps)), steps))
    ops = [graph.ops[row] for row in rows.tolist()]
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    made_by = [[tensors[name] for name in op.outputs] for op in ops]
    makers = {name: op.kind for op in graph.ops for name in op.outputs}
    return Things(
        rows,
        [op.name for op in ops],
        [op.module for op in ops],
        [(op.kind, len(op.inputs)) for op in ops],
        [
            (op.kind, len(op.inputs), tuple(tensor.dtype for tensor in outputs))
            for op, outputs in zip(ops, made_by, strict=True)
        ],
        [tuple(tensor.shape for tensor in outputs) for outputs in made_by],
        np.array([sum(tensor.nbytes for tensor in outputs) for outputs in made_by], dtype=np.int64),
        [tuple(makers.get(name, "") for name in op.inputs) for op in ops],
    )


def compare_traits(base: Things, head: Things) -> Traits:
    """The traits of both sides, with the same numbers for the same things. Of a pair in which one side has no
    graph, both are taken to have none."""
    stems = [[_stem(name) for name in side.names] for side in (base, head)]
    stem = number(*stems)
    both = len(stem)
    has_op = base.kinds is not None and head.kinds is not None
    kind, module = _column(base.kinds, head.kinds, both), _column(base.modules, head.modules, both)
    rank = _column(_ranks(base), _ranks(head), both)
    shape, size = _column(base.shapes, head.shapes, both), dense(np.concatenate([base.sizes, head.sizes]))
    in_module = np.zeros(both, dtype=np.bool_)
    if base.modules is not None and head.modules is not None:
        in_module = np.fromiter(map(bool, chain(base.modules, head.modules)), np.bool_)
    return Traits(
        split=len(base.rows),
        name=number(base.names, head.names),
        stem=stem,
        module=module,
        kind=kind,
        shape=shape,
        size=size,
        context=number(base.context, head.context),
        op=fold(kind, module, rank),
        call=fold(_column(base.calls, head.calls, both), module, rank),
        same=fold(kind, module, shape, size),
        telling=_telling(stem, has_op) & np.fromiter(map(bool, chain(*stems)), np.bool_),
        in_module=in_module,
        has_op=np.full(both, has_op),
    )


def _telling(stem: Ints, has_op: bool) -> Flags:
    """Which stems say something. Names that a tracer gives (view_17) are no more than numbers, unless hardly
    any other is like them; those in lists of buffers are people's own, unless most of them are alike."""
    bearers = np.bincount(stem)[stem] if len(stem) else stem
    few = bearers <= 2 * FEW
    return few if has_op else few | (2 * bearers <= len(stem))


def _column(base: Sequence[Hashable] | None, head: Sequence[Hashable] | None, both: int) -> Ints:
    """The numbers of a trait, all 0 where one side does not have it."""
    return np.zeros(both, dtype=np.int64) if base is None or head is None else number(base, head)


def _ranks(side: Things) -> list[int] | None:
    return None if side.shapes is None else [len(shape) for shape in side.shapes]


def _stem(name: str) -> str:
    """The name without the number at its end and what joins the two: "view_17" → "view"."""
    return name.rstrip("0123456789").rstrip("_.-:# ")


def number(*sides: Iterable[Hashable]) -> Ints:
    """A number for each different value, the same on all `sides`, one side behind the other."""
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)
    return np.fromiter(map(numbers.__getitem__, chain(*sides)), np.int64)


def dense(values: Ints) -> Ints:
    """The same values numbered from 0 without holes, in order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)


def fold(*columns: Ints) -> Ints:
    """One column that is equal where all `columns` (numbered from 0) are equal."""
    folded = columns[0]
    for column in columns[1:]:
        most = int(column.max(initial=0))
        if most:
            folded = dense(folded * (most + 1) + column)
    return folded
