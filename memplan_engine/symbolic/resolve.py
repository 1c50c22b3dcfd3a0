"""A graph with symbols, at other values of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Graph, Op, Tensor, Workspace, is_contiguous, span
from memplan_engine.scope import Scope
from memplan_engine.symbolic.expression import Formula, parse
from memplan_engine.symbolic.symbol_values import Values, check_values, hinted, in_words


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
    symbols = hinted(graph.symbols, at)
    ops, scope = graph.ops, graph.scope
    if symbols != graph.symbols:
        ops = tuple(replace(op, workspace=_workspace(op, sizes)) for op in graph.ops)
        if any(op.workspace.formula is None for op in ops) and scope is Scope.WITH_TEMPORARIES:
            scope = Scope.GRAPH
    return replace(graph, storages=storages, tensors=tensors, ops=ops, symbols=symbols, scope=scope)


def _workspace(op: Op, sizes: Sizes) -> Workspace:
    known = op.workspace
    if known.formula is None:
        return replace(known, shared=0)
    if not known.formula:
        return known
    return replace(known, shared=sizes.size(known.formula, f"op {op.name!r}, workspace"))


class Sizes:
    """The sizes that formulas give at one set of values, each worked out once."""

    def __init__(self, graph: Graph, values: Values) -> None:
        self.source, self.values = graph.name, values
        self._known: dict[str, int] = {}

    def size(self, text: str, place: str) -> int:
        """The value of `text`, 0 … 2^63−1; raises InputError naming `place`."""
        if text not in self._known:
            formula = parse(text, self.values, self.source, place)
            self._known[text] = size_at(formula, self.values, self.source, place)
        return self._known[text]


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
        sizes.size(text, place) if text else known
        for text, known in zip(tensor.formulas, tensor.shape, strict=True)
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


def _laid_out(tensor: Tensor, known: Tensor, sizes: Sizes) -> Tensor:
    """`tensor`, which has its new shape, with new strides and offset; `known` is the same at the hints."""
    if not tensor.layout:
        return tensor if tensor is known else replace(tensor, strides=_strides(known, tensor.shape))
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
    expected, product, made = 1, 1, list(tensor.strides)
    # Inner dimensions first; one that holds a single element lies inside those of equal stride.
    order = sorted(
        (axis for axis, stride in enumerate(tensor.strides) if stride),
        key=lambda axis: (tensor.strides[axis], tensor.shape[axis], -axis),  # type: ignore[index]
    )
    for axis in order:
        if tensor.strides[axis] != expected and tensor.shape[axis] != 1:
            return tensor.strides
        made[axis] = product
        expected *= max(tensor.shape[axis], 1)
        product *= max(shape[axis], 1)
    return tuple(made)


def item_bytes(dtype: str) -> int:
    """Bytes of one element, by the digits in the name of its type: 4 for "float32", 1 for "bool"."""
    digits = re.search(r"\d+", dtype)
    return max(1, int(digits[0]) // 8) if digits else 1
