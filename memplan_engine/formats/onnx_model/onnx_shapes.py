"""A model that onnx has read → Graph: weights dropped, shapes inferred, dimensions bound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.onnx_model.onnx_evaluate import infer_fixed, shapes_of
from memplan_engine.formats.onnx_model.onnx_graph import to_graph
from memplan_engine.formats.onnx_model.onnx_nodes import check_order, check_text, node_names
from memplan_engine.formats.onnx_model.onnx_symbols import (
    check_hints,
    hints_refused,
    symbol_names,
    with_formulas,
)
from memplan_engine.formats.onnx_model.onnx_values import bind, input_symbols
from memplan_engine.formats.onnx_model.onnx_wire import looks_like_onnx
from memplan_engine.formats.read_limits import read_bytes
from memplan_engine.graph import Graph

MAX_MODEL_BYTES = 2**31 - 1
"""What protobuf can read; larger models keep their weights in files of their own."""
_SMALL = 4096
"""Bytes of a weight up to which it may be a shape, and is kept for shape inference."""
_DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)


def load_model(path: Path, options: ImportOptions) -> Graph:
    """What `OnnxImporter.load` gives, and raises."""
    model = _read(path)
    check_order(model.graph, node_names(model.graph), path.name)
    _drop_weights(model.graph)
    bind(model.graph, options.dims, path.name)
    free = [name for name in input_symbols(model.graph) if name not in options.dims]
    hints = check_hints(options.hints, free, path.name)
    if free:
        return _symbolic(model, hints, options.dims, path)
    inferred = infer_fixed(model, lambda model: _infer(model, path.name), options.dims)
    return to_graph(inferred, path, options.dims)


def _symbolic(model: Any, hints: Mapping[str, int], dims: Mapping[str, int], path: Path) -> Graph:
    """The graph with formulas in the dimensions that have hints; those in `dims` are bound already."""

    def at(point: Mapping[str, int]) -> Any:
        copied = type(model)()
        copied.CopyFrom(model)
        bind(copied.graph, point, path.name)
        return infer_fixed(copied, lambda model: _infer(model, path.name), point)

    try:
        inferred = at(hints)
    except InputError as error:
        raise hints_refused(error, path.name, hints) from None
    graph = to_graph(inferred, path, {**dims, **hints})
    names = symbol_names(list(hints))

    def shapes_at(point: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return shapes_of(at(point).graph, point)

    return with_formulas(graph, names, hints, shapes_at, inferred.graph.node, path.name)


def _read(path: Path) -> Any:
    """The ModelProto in the file, with calls of its own functions replaced by what they do."""
    if not looks_like_onnx(path):
        raise InputError(path.name, "", "bytes that are no ONNX model", "an ONNX model")
    try:
        import onnx
        import onnx.inliner
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingDependencyError("onnx", "onnx", "reading an ONNX model") from None
    try:
        model = onnx.load_model_from_string(read_bytes(path, MAX_MODEL_BYTES))
    except DecodeError:
        raise InputError(path.name, "", "a truncated or damaged model", "a whole ONNX model") from None
    check_text(model.graph, path.name)
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise InputError(path.name, "functions", str(error), "functions that can be put in place") from None


def _drop_weights(graph: Any) -> None:
    """Forget the numbers of all weights but the small ones, so that inference copies no gigabytes.

    Sparse weights become dense ones, as runtimes make of them: inference cannot follow them otherwise.
    """
    from onnx import TensorProto

    for sparse in graph.sparse_initializer:
        graph.initializer.add(
            name=sparse.values.name,
            dims=sparse.dims,
            data_type=sparse.values.data_type,
            data_location=TensorProto.EXTERNAL,
        )
    del graph.sparse_initializer[:]

    for tensor in graph.initializer:
        if tensor.ByteSize() > _SMALL:
            for field in _DATA_FIELDS:
                tensor.ClearField(field)
            tensor.data_location = TensorProto.EXTERNAL


def _infer(model: Any, source: str) -> Any:
    import onnx

    try:
        # Without data_prop: it takes all memory on shapes that a damaged model inflates, and infer_fixed
        # follows the arithmetic on shapes further than it does.
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=False)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise InputError(
            source, "shape inference", str(error), "shapes and types that fit each other"
        ) from None
