"""How much a model is, before protobuf has it and before its functions are put in place: an empty message is
two bytes in a file and hundreds in memory, and functions that call each other twice double each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.graph import MOST_DIMENSIONS

MOST_FIELDS = 3_000_000
"""Of all messages together, a number in a packed list among them: 4 CPU seconds to count, and at most 1.3 GB
when protobuf and ONNX's shape inference hold them. A model of 100,000 nodes has some 2,500,000."""
MOST_NODES = 150_000
"""Those inside other nodes among them: 15 CPU seconds."""
NUMBERS_A_FIELD = 16
"""So many numbers of a packed list, 8 bytes each, count as one field."""
MOST_NESTED = 30
"""Graphs around a node: protobuf reads 100 messages inside one another, of which each takes three and the
types that inference adds up to seven."""
MOST_OPSET = 2**31 - 1
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MESSAGE = 11
_PACKED = frozenset({3, 4, 5, 13, 14})
"""The types of FieldDescriptor whose lists are varints side by side."""


def check_fields(data: bytes, source: str) -> None:
    """Raise InputError where `data`, a ModelProto, has more than MOST_FIELDS fields; what is damaged is left
    to protobuf. The values of weights count as one field where they are raw bytes. Also for more than
    MOST_NODES nodes, or of more than MOST_NESTED around one."""
    from onnx import GraphProto, ModelProto, NodeProto

    kinds: dict[str, dict[int, Any]] = {}
    left, nodes = MOST_FIELDS, 0
    waiting = [(0, len(data), ModelProto.DESCRIPTOR, 0)]
    while waiting:
        at, end, kind, depth = waiting.pop()
        if depth > 3 * MOST_NESTED + 1 and kind is GraphProto.DESCRIPTOR:
            raise too_deep(source)
        known = kinds.get(kind.full_name)
        if known is None:
            known = kinds[kind.full_name] = _nested(kind)
        while at < end:
            left -= 1
            if left < 0:
                found = f"more than {MOST_FIELDS:,} fields"
                raise InputError(
                    source, "", found, "a model of fewer nodes, or with its weights as raw bytes"
                )
            tag, at = _varint(data, at)
            wire = tag & 7
            if wire == _VARINT:
                _, at = _varint(data, at)
            elif wire == _LENGTH:
                length, at = _varint(data, at)
                inner = known.get(tag >> 3)
                if at + length > end:
                    return
                if inner is _VARINT:
                    left -= length // NUMBERS_A_FIELD
                elif inner is not None:
                    nodes += inner is NodeProto.DESCRIPTOR
                    if nodes > MOST_NODES:
                        raise too_many_nodes(source)
                    waiting.append((at, at + length, inner, depth + 1))
                at += length
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                # Protobuf skips groups, however much stands behind them.
                raise InputError(source, "", "a truncated or damaged model", "a whole ONNX model")


def too_many_nodes(source: str) -> InputError:
    """The error for a model of more than MOST_NODES."""
    return InputError(source, "", f"more than {MOST_NODES:,} nodes", "a part of the model")


def too_deep(source: str) -> InputError:
    """Return the error for graphs of more than MOST_NESTED levels."""
    found = "graphs too deep inside one another for protobuf"
    return InputError(source, "", found, f"at most {MOST_NESTED} around a node")


def check_sizes(model: Any, source: str) -> None:
    """Raise InputError for what protobuf can read and nobody can mean: a version of an operator set that is
    none, tensors of more than MOST_DIMENSIONS, functions that call each other in a circle, or that become
    more than MOST_NODES when they are put in place."""
    for entry in model.opset_import:
        if not 1 <= entry.version <= MOST_OPSET:
            place = f"operator set {entry.domain!r}"
            raise InputError(source, place, f"version {entry.version}", "1 or more, below 2^31")
    graph = model.graph
    ranks = [(tensor.name, len(tensor.dims)) for tensor in graph.initializer]
    ranks += [(each.values.name, len(each.dims)) for each in graph.sparse_initializer]
    for value in (*graph.input, *graph.output, *graph.value_info):
        ranks.append((value.name, len(value.type.tensor_type.shape.dim)))
    for name, rank in ranks:
        if rank > MOST_DIMENSIONS:
            found = f"{rank:,} dimensions"
            raise InputError(source, f"tensor {name!r}", found, f"at most {MOST_DIMENSIONS}")
    _check_functions(model, source)


def _check_functions(model: Any, source: str) -> None:
    calls = {(f.domain, f.name): Counter(_called(f)) for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    try:
        order = list(TopologicalSorter({name: [*inner] for name, inner in calls.items()}).static_order())
    except CycleError:
        raise InputError(source, "functions", "a circle of calls", "functions that come to an end") from None
    for name in order:
        inner: Counter[tuple[str, str]] = calls.get(name, Counter())
        sizes[name] = min(1 + sum(count * sizes[each] for each, count in inner.items()), MOST_NODES + 1)
    if sum(sizes.get(each, 1) for each in _called(model.graph)) > MOST_NODES:
        raise too_many_nodes(source)


def _called(graph: Any) -> Iterator[tuple[str, str]]:
    """Domain and kind of all nodes of a graph or a function, those of graphs inside them too."""
    for node in graph.node:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _called(inner)


def _nested(kind: Any) -> dict[int, Any]:
    """By field number what stands in a field of bytes: a kind of message, or _VARINT for a list of them."""
    found: dict[int, Any] = {}
    for field in kind.fields:
        if field.type == _MESSAGE:
            found[field.number] = field.message_type
        elif field.type in _PACKED:
            found[field.number] = _VARINT
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the place behind it; past the end of `data` there are zeros."""
    byte = data[at] if at < len(data) else 0
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < 70:
        byte = data[at] if at < len(data) else 0
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value, at
