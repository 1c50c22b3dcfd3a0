"""What the messages of an ONNX model say: what nodes read and which only make constants; shapes, bytes and
symbolic dimensions of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.graph import find_cycle

STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
CALLS = ("If", "Loop", "Scan")
"""The operators whose graphs are laid out."""
_NOT_FOLDED = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Dropout",
        "DequantizeLinear",
    }
)
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_DROPOUT_IS_INFERENCE = 7
"""Before this version of the operator set Dropout had a mode of its own (`is_test`)."""
ELEMENTS: dict[str, tuple[str, int]] = {
    "FLOAT": ("float32", 32),
    "DOUBLE": ("float64", 64),
    "FLOAT16": ("float16", 16),
    "BFLOAT16": ("bfloat16", 16),
    "COMPLEX64": ("complex64", 64),
    "COMPLEX128": ("complex128", 128),
    "BOOL": ("bool", 8),
    **{
        f"{sign}INT{bits}": (f"{sign.lower()}int{bits}", bits)
        for sign in ("", "U")
        for bits in (2, 4, 8, 16, 32, 64)
    },
    **{
        f"FLOAT8{kind}": (f"float8{kind.lower()}", 8)
        for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ", "E8M0")
    },
    "FLOAT4E2M1": ("float4e2m1", 4),
    "FLOAT6E2M3": ("float6e2m3", 6),
    "FLOAT6E3M2": ("float6e3m2", 6),
}
"""ONNX's name of an element type → ours, and its bits. Elements under a byte are packed."""


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs inside a node: branches and loop bodies."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def count_nodes(graph: Any) -> int:
    """The nodes of a graph and of all graphs inside them."""
    inner = (each for node in graph.node for each in subgraphs(node))
    return len(graph.node) + sum(map(count_nodes, inner))


def opset_version(model: Any) -> int:
    """The version of ONNX's own operator set that a model uses."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def reads(node: Any) -> tuple[str, ...]:
    """The values a node reads, each once: its inputs, and what the graphs inside it take from outside."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs(node):
        names.update(dict.fromkeys(_captured(graph)))
    return tuple(names)


def _captured(graph: Any) -> Iterator[str]:
    own = {value.name for value in graph.input} | initializers(graph)
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def initializers(graph: Any) -> set[str]:
    """The names of a graph's weights, sparse ones included."""
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return sparse | {tensor.name for tensor in graph.initializer}


def check_text(graph: Any, source: str) -> None:
    """Raise InputError when a name in the graph, or in one inside it, is no text: protobuf hands damaged
    ones over as bytes."""
    values = [*graph.input, *graph.output, *graph.value_info]
    symbols = [dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim]
    names = [item.name for item in (*values, *graph.initializer)] + symbols
    names += [tensor.values.name for tensor in graph.sparse_initializer]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
        for inner in subgraphs(node):
            check_text(inner, source)
    for name in names:
        if not isinstance(name, str):
            raise InputError(source, "", f"the name {name!r}", "names in UTF-8")


def node_names(graph: Any) -> list[str]:
    """A name a node: its own, or Kind_index; a name that is in use gets the index, too."""
    names: dict[str, None] = {}
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in names:
            name = f"{name}_{index}"
        names[name] = None
    return list(names)


def check_order(graph: Any, names: list[str], source: str) -> None:
    """Raise InputError when a node reads a value that nothing has made before it."""
    ready = {value.name for value in graph.input} | initializers(graph)
    maker = {out: name for name, node in zip(names, graph.node, strict=True) for out in node.output if out}
    for name, node in zip(names, graph.node, strict=True):
        for read in reads(node):
            if read in ready:
                continue
            if read not in maker:
                raise InputError(
                    source, f"node {name!r}", f"input {read!r}, which nothing makes", "a value of the graph"
                )
            cycle = find_cycle({n: reads(node) for n, node in zip(names, graph.node, strict=True)}, maker)
            if cycle:
                raise InputError(source, "nodes", f"a cycle: {' → '.join(cycle)}", "a graph without cycles")
            raise InputError(
                source,
                f"node {name!r}",
                f"{read!r} read before node {maker[read]!r} makes it",
                "nodes in an order in which they can run",
            )
        ready.update(out for out in node.output if out)
    for value in graph.output:
        if value.name not in ready:
            raise InputError(
                source, f"output {value.name!r}", "no node that makes it", "a value of the graph"
            )


def is_view(node: Any, opset: int, false: set[str]) -> bool:
    """Whether a node's first output is its first input in another shape, as runtimes share it: Reshape and
    its kin, and Dropout when it does not train. `false` names the values that are a constant False."""
    if node.domain not in STANDARD_DOMAINS:
        return False
    if node.op_type == "Dropout":
        mode = node.input[2] if len(node.input) > 2 else ""
        return opset >= _DROPOUT_IS_INFERENCE and (not mode or mode in false)
    return node.op_type in _VIEWS


def false_values(graph: Any) -> set[str]:
    """The names of the values that are one constant False: what switches training off."""
    constant = {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if attribute.name == "value"
    }
    tensors = {**constant, **{tensor.name: tensor for tensor in graph.initializer}}
    return {
        name
        for name, tensor in tensors.items()
        if tensor.raw_data == b"\0" or (tensor.int32_data[:2] == [0] and not tensor.dims)
    }


def makes_constant(node: Any, constants: set[str], static: set[str]) -> bool:
    """Return whether a node's outputs are known before the model runs.

    So are those of a standard node that reads only constants (or nothing) and draws no random numbers, and
    the Shape and Size of a value in `static`, those of fixed shape. DequantizeLinear is kept, as ONNX Runtime
    keeps it (`skip_dequantize_linear` of its constant folding): weights stay as small as the file has them.
    """
    if node.domain not in STANDARD_DOMAINS or stays(node):
        return False
    if node.op_type in ("Shape", "Size") and static.issuperset(node.input[:1]):
        return True
    return all(name in constants for name in reads(node))


def stays(node: Any) -> bool:
    """Return whether a node, or one inside it, is an op whatever it reads."""
    return not _NOT_FOLDED.isdisjoint(_kinds(node))


def _kinds(node: Any) -> Iterator[str]:
    yield node.op_type
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _kinds(inner)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of fixed shape; `nbytes` is rounded up to whole bytes."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


def value_of(shape: Iterable[int], element: str, place: str, source: str) -> Value:
    """The Value of a shape and an ONNX element type; raises InputError for types without a fixed size."""
    if element not in ELEMENTS:
        raise InputError(source, place, f"elements of type {element}", "elements of a fixed size")
    dtype, bits = ELEMENTS[element]
    sizes = tuple(shape)
    if min(sizes, default=0) < 0:
        raise InputError(source, place, f"the shape {sizes}", "dimensions of 0 or more")
    return Value(sizes, dtype, -(-math.prod(sizes) * bits // 8))


def element_name(number: int) -> str:
    """ONNX's name of an element type, or its number when the name is not known."""
    from onnx import TensorProto

    known: dict[int, str] = {value: name for name, value in TensorProto.DataType.items()}
    return known.get(number, str(number))


def fixed_shape(tensor_type: Any, dims: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of a TypeProto.Tensor, symbolic dimensions looked up in `dims`; None where one is open."""
    if not tensor_type.HasField("shape"):
        return None
    shape = [_size(dim, dims) for dim in tensor_type.shape.dim]
    return None if None in shape else tuple(size for size in shape if size is not None)


def symbols(graph: Any) -> list[str]:
    """The names of the symbolic dimensions in a GraphProto, those of its inputs first."""
    return list(dict.fromkeys(dim.dim_param for dim in _dims(graph) if dim.dim_param))


def _dims(graph: Any) -> Iterator[Any]:
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            yield from value.type.tensor_type.shape.dim


def _size(dim: Any, dims: Mapping[str, int]) -> int | None:
    """The number of a dimension; exporters also write −1 for one that is open."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dims.get(dim.dim_param) if dim.dim_param else None
