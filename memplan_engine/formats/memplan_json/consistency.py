"""What a graph written by somebody says twice has to be the same both times."""

from __future__ import annotations

from math import prod

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Tensor, span
from memplan_engine.symbolic.expression import Formula, Number, parse

ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of one element; of other dtypes nothing is known."""


def check_consistency(graph: Graph, source: str) -> Graph:
    """Return `graph` if sizes, shapes, strides and formulas agree.

    Raises
    ------
    InputError: a tensor whose bytes are not those of its shape and dtype, or that reaches past its storage;
        a formula that cannot be read, or does not give the plain number at the symbols' hints; a tensor that
        is input and constant.
    """
    nbytes = {storage.name: storage for storage in graph.storages}
    for tensor in graph.tensors:
        storage = nbytes[tensor.storage]
        _check_bytes(tensor, source)
        if (tensor.strides is not None or tensor.offset) and (storage.nbytes or not storage.formula):
            _check_extent(tensor, storage.nbytes, source)
    both = set(graph.inputs) & set(graph.constants)
    if both:
        found = "a tensor that is also among the inputs"
        raise InputError(source, f"constants, {min(both)!r}", found, "either an input or a constant")
    if any(storage.formula for storage in graph.storages) or any(
        t.formulas or t.layout for t in graph.tensors
    ):
        _check_formulas(graph, source)
    return graph


def _check_bytes(tensor: Tensor, source: str) -> None:
    item = ITEM_BYTES.get(tensor.dtype)
    if item is None or not tensor.shape:
        return
    expected = item * prod(tensor.shape)
    if tensor.nbytes != expected:
        shape = " × ".join(map(str, tensor.shape))
        found = f"{tensor.nbytes} bytes for {shape} of {tensor.dtype}"
        raise InputError(source, f"tensor {tensor.name!r}", found, str(expected))


def _check_extent(tensor: Tensor, whole: int, source: str) -> None:
    low, high = span(tensor)
    if high > whole and 0 not in tensor.shape:
        found = f"bytes {low} to {high}"
        expected = f"within the {whole} bytes of storage {tensor.storage!r}"
        raise InputError(source, f"tensor {tensor.name!r}", found, expected)


def _check_formulas(graph: Graph, source: str) -> None:
    names = {symbol.name: symbol for symbol in graph.symbols}
    hints = {symbol.name: symbol.hint for symbol in graph.symbols if symbol.hint is not None}
    said = [(f"storage {s.name!r}, formula", s.formula, s.nbytes) for s in graph.storages if s.formula]
    for tensor in graph.tensors:
        pairs = zip(tensor.formulas, tensor.shape, strict=False)
        said += [(f"tensor {tensor.name!r}, formulas", text, size) for text, size in pairs if text]
        said += [(f"tensor {tensor.name!r}, layout", *pair) for pair in _layout(tensor)]
    known: dict[str, Number | None] = {}
    for place, text, plain in said:
        if text not in known:
            formula = parse(text, names, source, place)
            known[text] = _value(formula, hints)
        value = known[text]
        if value is not None and value != plain:
            at = ", ".join(f"{name} = {hint}" for name, hint in hints.items())
            raise InputError(source, place, f"{text} = {value} at {at}", f"{plain}, the plain number")


def _layout(tensor: Tensor) -> list[tuple[str, int]]:
    """Each layout formula with its plain number; strides of dimensions of size 1 say nothing."""
    if not tensor.layout:
        return []
    strides = tensor.strides or tuple(prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape)))
    said = zip(tensor.layout, strides, tensor.shape, strict=False)
    several = [(text, stride) for text, stride, size in said if size > 1 and 0 not in tensor.shape]
    return [*several, (tensor.layout[-1], tensor.offset)]


def _value(formula: Formula, hints: dict[str, int]) -> Number | None:
    """The value at the hints; None when a symbol of it has none, or where there is no such size."""
    if not formula.names <= hints.keys():
        return None
    try:
        return formula.at(hints)
    except ZeroDivisionError:
        return None
