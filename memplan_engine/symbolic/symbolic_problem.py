"""A graph with symbols: at other values of them, and as one problem whose sizes are formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Op, Tensor, Workspace, is_contiguous, span
from memplan_engine.lifetimes import PlanningOptions, to_problem
from memplan_engine.problem import Ints, Origin, Problem, make_problem
from memplan_engine.schedule import Schedule, sequential
from memplan_engine.scope import Scope
from memplan_engine.symbolic.expression import Formula, parse
from memplan_engine.symbolic.symbol_values import Values, check_values, in_words


class ImpossibleSizeError(InputError):
    """A size that is negative or no whole number: a model does not run at such values."""


def resolve(graph: Graph, values: Mapping[str, int] | None = None) -> Graph:
    """`graph` with all plain sizes taken at `values`, hints for the symbols that are not among them.

    The symbols' hints become the values, and formulas stay, so that the result can be resolved again. Every
    distinct formula is evaluated once. Strides and offsets are those of `Tensor.layout`. Without it, strides
    that fill memory without holes (also transposed ones, and 0 for expanded dimensions) follow the shape;
    others, and offsets, stay: right for plain numbers, but a graph written elsewhere may have left out that
    they depend on the symbols, which can be told only where a tensor no longer fits its storage. What an op
    holds inside that is known at the hints only is not known at other values, and the scope says so.

    Raises
    ------
    InputError: values as in `check_values`; a formula that cannot be read or has an unknown symbol; a size
        that is negative, no whole number (ImpossibleSizeError), or above 2^63−1, naming storage or tensor; a
        tensor that reaches outside its storage.
    """
    at = check_values(graph.symbols, values, graph.name)
    if not graph.symbols:
        return graph
    sizes = Sizes(graph, at)
    storages = tuple(
        replace(storage, nbytes=sizes.size(storage.formula, f"storage {storage.name!r}"))
        if storage.formula
        else storage
        for storage in graph.storages
    )
    if sum(storage.nbytes for storage in storages) > MAX_BYTES:
        found = f"sizes whose sum passes 2^63-1 at {in_words(at)}"
        raise InputError(graph.name, "storages", found, "a smaller total")
    tensors = tuple(_tensor(tensor, sizes) for tensor in graph.tensors)
    whole = {storage.name: storage.nbytes for storage in storages}
    varied = {storage.name for storage in storages if storage.formula}
    for tensor in tensors:
        if tensor.layout or tensor.formulas or tensor.storage in varied:
            _check_span(tensor, whole[tensor.storage], sizes)
    given = values or {}
    symbols = tuple(
        replace(each, hint=at[each.name], given=each.given or each.name in given) for each in graph.symbols
    )
    ops, scope = graph.ops, graph.scope
    if symbols != graph.symbols:
        ops = tuple(replace(op, workspace=_workspace(op, sizes)) for op in graph.ops)
        if any(op.workspace.formula is None for op in ops) and scope is Scope.WITH_TEMPORARIES:
            scope = Scope.GRAPH
    return replace(graph, storages=storages, tensors=tensors, ops=ops, symbols=symbols, scope=scope)


def _workspace(op: Op, sizes: Sizes) -> Workspace:
    workspace = op.workspace
    if workspace.formula is None:
        return replace(workspace, shared=0)
    if not workspace.formula:
        return workspace
    return replace(workspace, shared=sizes.size(workspace.formula, f"op {op.name!r}, workspace"))


class Sizes:
    """The sizes that formulas give at one set of values, each worked out once."""

    def __init__(self, graph: Graph, values: Values) -> None:
        self.source, self.values = graph.name, values
        self._numbers: dict[str, int] = {}

    def size(self, text: str, place: str) -> int:
        """The value of `text`, 0 … 2^63−1; raises InputError naming `place`."""
        if text not in self._numbers:
            formula = parse(text, self.values, self.source, place)
            self._numbers[text] = size_at(formula, self.values, self.source, place)
        return self._numbers[text]


def size_at(formula: Formula, values: Mapping[str, int], source: str, place: str) -> int:
    """`formula` at `values` as a size: a whole number from 0 to 2^63−1.

    Raises
    ------
    ImpossibleSizeError: negative, no whole number, or a division by zero. InputError: above 2^63−1.
    """
    try:
        value = formula.at(values)
    except ZeroDivisionError:
        found = f"{formula.text}, a division by zero at {in_words(values)}"
        raise ImpossibleSizeError(source, place, found, "a whole number from 0 to 2^63-1") from None
    if isinstance(value, int) and 0 <= value <= MAX_BYTES:
        return value
    found = f"{formula.text} = {value} at {in_words(values)}"
    kind = InputError if value > MAX_BYTES else ImpossibleSizeError
    raise kind(source, place, found, "a whole number from 0 to 2^63-1")


def _tensor(tensor: Tensor, sizes: Sizes) -> Tensor:
    if not any(tensor.formulas):
        return _laid_out(tensor, tensor, sizes)
    place = f"tensor {tensor.name!r}"
    shape = tuple(
        sizes.size(text, place) if text else size
        for text, size in zip(tensor.formulas, tensor.shape, strict=True)
    )
    if shape == tensor.shape:
        return _laid_out(tensor, tensor, sizes)
    before, now = math.prod(tensor.shape), math.prod(shape)
    nbytes = -(-now * tensor.nbytes // before) if before else now * item_bytes(tensor.dtype)
    if nbytes > MAX_BYTES:
        raise InputError(
            sizes.source, place, f"{nbytes} bytes at {in_words(sizes.values)}", "below 2^63 bytes"
        )
    return _laid_out(replace(tensor, shape=shape, nbytes=nbytes), tensor, sizes)


def _laid_out(tensor: Tensor, at_hints: Tensor, sizes: Sizes) -> Tensor:
    """`tensor`, which has its new shape, with new strides and offset; `at_hints` is the same at the hints."""
    if not tensor.layout:
        return tensor if tensor is at_hints else replace(tensor, strides=_strides(at_hints, tensor.shape))
    place = f"tensor {tensor.name!r}, layout"
    *strides, offset = (sizes.size(text, place) for text in tensor.layout)
    contiguous = is_contiguous(tensor.shape, strides)
    return replace(tensor, strides=None if contiguous else tuple(strides), offset=offset)


def _check_span(tensor: Tensor, whole: int, sizes: Sizes) -> None:
    if (tensor.strides is None and not tensor.offset) or 0 in tensor.shape:
        return
    low, high = span(tensor)
    if high > whole:
        why = "" if tensor.layout else ", its strides and offset known only at the hint"
        found = f"bytes {low} to {high} at {in_words(sizes.values)}{why}"
        expected = f"within the {whole} bytes of storage {tensor.storage!r}"
        raise InputError(sizes.source, f"tensor {tensor.name!r}", found, expected)


def _strides(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides for `shape` where those of `tensor` fill memory in some order of its dimensions."""
    if tensor.strides is None:
        return None
    expected, product, strides = 1, 1, list(tensor.strides)
    # Inner dimensions first; one that holds a single element lies inside those of equal stride.
    order = sorted(
        (axis for axis, stride in enumerate(tensor.strides) if stride),
        key=lambda axis: (tensor.strides[axis], tensor.shape[axis], -axis),  # type: ignore[index]
    )
    for axis in order:
        if tensor.strides[axis] != expected and tensor.shape[axis] != 1:
            return tensor.strides
        strides[axis] = product
        expected *= max(tensor.shape[axis], 1)
        product *= max(shape[axis], 1)
    return tuple(strides)


def item_bytes(dtype: str) -> int:
    """Bytes of one element, by the digits in the name of its type: 4 for "float32", 1 for "bool"."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicProblem:
    """Buffers with formulas for sizes. `which[i]` is the place in `formulas` (distinct texts) of the size of
    buffer i; `frame` holds everything else of the buffers, with sizes of no meaning. `round_sizes`: sizes are
    rounded up to the alignment after they are evaluated."""

    graph: Graph
    schedule: Schedule
    frame: Problem
    formulas: tuple[Formula, ...]
    which: Ints
    round_sizes: bool = False

    def __len__(self) -> int:
        return len(self.frame)

    def formula(self, buffer: int) -> Formula:
        """The size of one buffer, in bytes, before it is rounded."""
        return self.formulas[int(self.which[buffer])]

    def values(self, values: Mapping[str, int] | None = None) -> Values:
        """`values` checked, with hints for the symbols that are not among them."""
        return check_values(self.graph.symbols, values, self.graph.name)

    def sizes(self, values: Mapping[str, int]) -> Ints:
        """The size of each buffer in bytes at values of all symbols.

        Raises
        ------
        ImpossibleSizeError: a size that is negative or not whole. InputError: one above 2^63−1, or a sum.
        """
        distinct = [
            size_at(formula, values, self.graph.name, self._place(number))
            for number, formula in enumerate(self.formulas)
        ]
        counts = np.bincount(self.which, minlength=len(self.formulas)).tolist()
        if sum(size * count for size, count in zip(distinct, counts, strict=True)) > MAX_BYTES:
            raise InputError(self.graph.name, "storages", "sizes whose sum passes 2^63-1", "a smaller total")
        sizes: Ints = np.array(distinct, dtype=np.int64)[self.which]
        return sizes + -sizes % self.frame.alignment if self.round_sizes else sizes

    def at(self, values: Mapping[str, int] | None = None, origin: bool = True) -> Problem:
        """The plain problem at `values`; buffers without bytes stay in it. Without `origin` it does not know
        its graph, which saves most of the time.

        Raises
        ------
        InputError: as `check_values` and `sizes`.
        """
        checked, frame = self.values(values), self.frame
        return make_problem(
            frame.start,
            frame.end,
            self.sizes(checked),
            names=frame.names,
            alignment=frame.alignment,
            gaps=frame.gaps,
            steps=frame.steps,
            name=frame.name,
            origin=Origin(resolve(self.graph, checked), self.schedule) if origin else None,
        )

    def _place(self, formula: int) -> str:
        first = int(np.flatnonzero(self.which == formula)[0])
        return f"storage {self.frame.names[first]!r}"


def numbered(formulas: Sequence[Formula]) -> tuple[tuple[Formula, ...], Ints]:
    """The distinct ones of `formulas`, and the place of each among them: `SymbolicProblem.which`."""
    rows = {formula: row for row, formula in enumerate(dict.fromkeys(formulas))}
    return tuple(rows), np.array([rows[formula] for formula in formulas], dtype=np.int64)


def symbolic_problem(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    round_sizes: bool = False,
    **options: Unpack[PlanningOptions],
) -> SymbolicProblem:
    """The buffers of `graph`, as `to_problem` finds them, and those with formulas that happen to have no
    bytes at the hints. A graph without symbols gives formulas that are plain numbers.

    Raises
    ------
    InputError: `alignment` below 1, a formula that cannot be read or has an unknown symbol.
    """
    schedule = schedule or sequential(graph)
    filled = tuple(replace(s, nbytes=1) if s.formula else s for s in graph.storages)
    frame = to_problem(replace(graph, storages=filled), schedule, **options)
    symbols = {symbol.name: symbol for symbol in graph.symbols}
    storages = {storage.name: storage for storage in graph.storages}
    read = partial(parse, names=symbols, source=graph.name)
    formulas = [
        read(storages[name].formula or str(storages[name].nbytes), place=f"storage {name!r}")
        for name in frame.names
    ]
    return SymbolicProblem(graph, schedule, frame, *numbered(formulas), round_sizes)
