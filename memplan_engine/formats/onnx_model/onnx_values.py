"""What ONNX says of its values: shapes, element types, bytes, and symbolic dimensions bound to numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memplan_engine.errors import InputError

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


def bind(graph: Any, dims: Mapping[str, int], source: str) -> None:
    """Put the numbers of `dims` for the symbolic dimensions of a GraphProto, in place.

    A dimension of a graph input that has neither a number nor a name can be bound as `input[axis]`.

    Raises
    ------
    InputError: a name that the graph does not have, or a number below 1.
    """
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _size(dim, {}) is None and not dim.dim_param:
                dim.dim_param = f"{value.name}[{axis}]"
    known = symbols(graph)
    for name, size in dims.items():
        if name not in known:
            have = f"one of {', '.join(known)}" if known else "none, as every dimension is a number"
            raise InputError(source, "--dim", f"the dimension {name!r}", have)
        if size < 1:
            raise InputError(source, f"--dim {name}", str(size), "1 or more")
    for dim in _dims(graph):
        if dim.dim_param in dims:
            dim.dim_value = dims[dim.dim_param]


def symbols(graph: Any) -> list[str]:
    """The names of the symbolic dimensions in a GraphProto, those of its inputs first."""
    return list(dict.fromkeys(dim.dim_param for dim in _dims(graph) if dim.dim_param))


def input_symbols(graph: Any) -> list[str]:
    """The names of the symbolic dimensions of the graph's inputs."""
    return list(
        dict.fromkeys(
            dim.dim_param
            for value in graph.input
            for dim in value.type.tensor_type.shape.dim
            if dim.dim_param
        )
    )


def _dims(graph: Any) -> Iterator[Any]:
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            yield from value.type.tensor_type.shape.dim


def _size(dim: Any, dims: Mapping[str, int]) -> int | None:
    """The number of a dimension; exporters also write −1 for one that is open."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dims.get(dim.dim_param) if dim.dim_param else None
