"""A model that onnx has read → Graph: weights dropped, shapes inferred, dimensions bound.

ONNX's inference follows the arithmetic on shapes only through a few operators. Exporters write more
(Div, Equal, Where, ConstantOfShape, Range …), so such nodes are evaluated with ONNX's reference
implementation, put back as Constant nodes, and inference runs again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.onnx_model.onnx_dimensions import (
    Dimensions,
    bind,
    check_results,
    name_dimensions,
    name_results,
)
from memplan_engine.formats.onnx_model.onnx_graph import check_selected, to_graph, unknown_calls
from memplan_engine.formats.onnx_model.onnx_insides import lay_out, runs_graphs
from memplan_engine.formats.onnx_model.onnx_layout import ContradictionError, Layout, as_it_is
from memplan_engine.formats.onnx_model.onnx_proto import (
    STANDARD_DOMAINS,
    check_order,
    check_text,
    count_nodes,
    fixed_shape,
    node_names,
    opset_version,
    subgraphs,
)
from memplan_engine.formats.onnx_model.onnx_symbols import hints_refused, with_formulas
from memplan_engine.formats.onnx_model.onnx_wire import check_fields, check_sizes, too_deep
from memplan_engine.formats.read_limits import read_bytes
from memplan_engine.graph import MAX_BYTES, MOST_DIMENSIONS, Graph

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
MOST_ELEMENTS = 1024
"""What is larger is no shape."""
MOST_ROUNDS = 200
MOST_EVALUATED = 20_000
"""Nodes that are evaluated: 8 CPU seconds. A language model of 80 layers has some 4,000 that compute
shapes."""
MOST_INFERRED = 2_000_000
"""Nodes in all rounds together: 10 CPU seconds."""
MOST_LAYOUTS = 20
"""Most layouts to try for calls inside calls. A model that needs more is not laid out."""
MOST_OPEN = 250_000
"""Nodes times dimensions that are left open, each of which takes some rounds more."""
_EVALUATED = frozenset(
    """Abs Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Flatten Floor Gather Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Range ReduceMax ReduceMin ReduceProd
    ReduceSum Reshape Slice Sqrt Squeeze Sub Transpose Unsqueeze Where""".split()  # noqa: SIM905
)
_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What the reference implementation raises on damaged tensors and attributes: then nothing is concluded."""
Array = NDArray[Any]
Flatten = Callable[[Any, Mapping[str, int]], tuple[Any, Layout]]
"""Lays flat a model whose shapes are inferred at the given dimensions."""


def load_model(path: Path, options: ImportOptions) -> Graph:
    """What `OnnxImporter.load` gives, and raises, for a file that has the frame of a model."""
    model = _read(path)
    check_order(model.graph, node_names(model.graph), path.name)
    _drop_weights(model.graph)
    dimensions = name_dimensions(model.graph, path.name)
    try:
        dims, hints = dimensions.asked(options.dims, options.hints)
    except InputError:
        # A name that only the shapes of results have is known when these are inferred.
        dims, hints = dimensions.asked({}, {})
    _check_open(model, len(hints), path)
    dimensions, known = _with_results(model, dimensions, {**dims, **hints})
    dims, hints = dimensions.asked(options.dims, options.hints)
    if hints:
        graph = _symbolic(model, dimensions, hints, dims, path)
    else:
        inferred, sizes = known or _at(model, dimensions, dims)

        def plan(flatten: Flatten) -> Graph:
            flat, layout = flatten(inferred, sizes)
            check_selected(flat.graph, shapes_of(flat.graph, sizes), path.name)
            return to_graph(flat, path, sizes, layout)

        graph = _planned(plan, inferred, lambda: _insides_of(inferred, sizes, path.name), path.name)
    bound = ", ".join(f"{dimensions.words(name)} = {value:,}" for name, value in dims.items())
    return replace(graph, notes=(f"at {bound}", *graph.notes)) if bound else graph


def _check_open(model: Any, count: int, path: Path) -> None:
    nodes = count_nodes(model.graph)
    if count * max(nodes, count) > MOST_OPEN:
        found = f"{count:,} open dimensions of {nodes:,} nodes"
        raise InputError(path.name, "inputs", found, "dimensions bound with --dim NAME=VALUE")


def _at(model: Any, dimensions: Dimensions, values: Mapping[str, int]) -> tuple[Any, dict[str, int]]:
    """`model` with shapes at `values` of its symbols, and the sizes of all its dimensions there."""
    copied = type(model)()
    copied.CopyFrom(model)
    sizes = bind(copied.graph, dimensions, values)
    inferred = infer_fixed(copied, lambda model: _infer(model, dimensions.source), sizes)
    return _with_insides(inferred, sizes, dimensions.source), sizes


def _with_insides(inferred: Any, sizes: Mapping[str, int], source: str) -> Any:
    """`inferred`, also with the shapes that follow only from what is inside its calls."""
    made = {name for node in inferred.graph.node for name in node.output if name}
    if not runs_graphs(inferred.graph) or made <= shapes_of(inferred.graph, sizes).keys():
        return inferred
    try:
        flat, _ = Insides().flat(inferred, source, sizes)
    except ContradictionError:
        raise
    except InputError:
        return inferred
    whole = type(inferred)()
    whole.CopyFrom(inferred)
    del whole.graph.value_info[:], whole.graph.output[:]
    whole.graph.value_info.extend(value for value in flat.graph.value_info if value.name in made)
    whole.graph.output.extend(flat.graph.output)
    return whole


def _with_results(
    model: Any, dimensions: Dimensions, values: Mapping[str, int]
) -> tuple[Dimensions, tuple[Any, dict[str, int]] | None]:
    """`dimensions`, and names for those of results that have no shape at `values`, put into `model`; and what
    `_at` gives there, where all have one.

    Raises
    ------
    InputError: a value for a dimension of a result that has another one.
    """
    free = {name: value for name, value in values.items() if name not in dimensions.others}
    if len(free) < len(values):
        try:
            alone, _ = _at(model, dimensions, free)
        except InputError:
            pass
        else:
            check_results(model.graph, alone.graph, dimensions.source, values, free)
    try:
        inferred, sizes = _at(model, dimensions, values)
    except InputError:
        # Raised again, and told better, where these values are what is planned.
        return dimensions, None
    shapes = shapes_of(inferred.graph, sizes)
    if all(name in shapes for node in model.graph.node for name in node.output if name):
        return dimensions, (inferred, sizes)
    copied = type(model)()
    copied.CopyFrom(model)
    for value in copied.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    inferred, _ = _at(copied, dimensions, values)
    return name_results(model.graph, inferred.graph, dimensions), None


@dataclass(frozen=True, slots=True)
class Insides:
    """The part of a model's If, Loop and Scan that is laid out; arguments of `lay_out`."""

    left: frozenset[str] = frozenset()
    known: Mapping[str, int] = field(default_factory=dict)

    def flat(self, inferred: Any, source: str, dims: Mapping[str, int]) -> tuple[Any, Layout]:
        """The model laid flat, with shapes."""
        layout = lay_out(inferred, self.left, self.known)
        flat = infer_fixed(
            layout.model, lambda _: layout.with_calls(_infer(layout.without_calls(), source)), dims, layout
        )
        layout.check(shapes_of(flat.graph, dims), _numbers(flat.graph), source)
        return flat, layout


def _insides_of(
    inferred: Any, dims: Mapping[str, int], source: str, known: Mapping[str, int] | None = None
) -> Insides:
    """Return the calls whose insides are known in full. Without `known`, also look for known conditions."""
    insides = Insides(known=known or {})
    for _ in range(MOST_LAYOUTS):
        flat, layout = insides.flat(inferred, source, dims)
        found = {} if known is not None else layout.decided(shapes_of(flat.graph, dims), _numbers(flat.graph))
        unknown = unknown_calls(flat, dims, layout, source)
        if not found.keys() <= insides.known.keys():
            insides = replace(insides, known={**insides.known, **found})
        elif unknown:
            insides = replace(insides, left=insides.left | unknown)
        else:
            return insides
    return replace(insides, left=frozenset(node_names(inferred.graph)))


def _planned(plan: Callable[[Flatten], Graph], model: Any, find: Callable[[], Insides], source: str) -> Graph:
    """The graph that `plan` makes of `model` with the insides that `find` gives, else without any."""
    if not runs_graphs(model.graph):
        return plan(_without_insides)
    try:
        insides = find()
        return plan(lambda inferred, dims: insides.flat(inferred, source, dims))
    except ContradictionError:
        raise
    except InputError as error:
        try:
            return plan(_without_insides)
        except InputError:
            raise error from None


def _without_insides(inferred: Any, _: Mapping[str, int]) -> tuple[Any, Layout]:
    return inferred, as_it_is(inferred)


def _symbolic(
    model: Any, dimensions: Dimensions, hints: Mapping[str, int], dims: Mapping[str, int], path: Path
) -> Graph:
    """The graph with formulas in the dimensions that have hints; those in `dims` are bound."""
    source = path.name
    try:
        inferred, sizes = _at(model, dimensions, {**dims, **hints})
    except InputError as error:
        raise hints_refused(error, source, hints) from None

    def insides() -> Insides:
        # Which branch is taken has to hold for all sizes.
        known = _insides_of(*_at(model, dimensions, dims), source).known
        try:
            return _insides_of(inferred, sizes, source, known)
        except InputError as error:
            raise hints_refused(error, source, hints) from None

    def plan(flatten: Flatten) -> Graph:
        flat, layout = flatten(inferred, sizes)
        graph = to_graph(flat, path, sizes, layout)

        def shapes_at(point: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
            inferred, sizes = _at(model, dimensions, {**dims, **point})
            flat, layout = flatten(inferred, sizes)
            unknown = unknown_calls(flat, sizes, layout, source)
            return {} if unknown else shapes_of(flat.graph, sizes)

        return with_formulas(graph, dimensions, hints, dims, shapes_at, flat.graph.node)

    return _planned(plan, model, insides, source)


def _read(path: Path) -> Any:
    """The ModelProto in the file, with calls of its own functions replaced by what they do."""
    try:
        import onnx
        import onnx.inliner
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingDependencyError("onnx", "onnx", "reading an ONNX model") from None
    try:
        data = read_bytes(path, MAX_MODEL_BYTES)
        check_fields(data, path.name)
        model = onnx.load_model_from_string(data)
    except DecodeError:
        raise InputError(path.name, "", "a truncated or damaged model", "a whole ONNX model") from None
    del data
    check_sizes(model, path.name)
    check_text(model.graph, path.name)
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except DecodeError:
        raise too_deep(path.name) from None
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
    for node in graph.node:
        for inner in subgraphs(node):
            _drop_weights(inner)


def _infer(model: Any, source: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        # Without data_prop: it takes all memory on shapes that a damaged model inflates, and infer_fixed
        # follows the arithmetic on shapes further than it does.
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=False)
    except DecodeError:
        raise too_deep(source) from None
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise InputError(
            source, "shape inference", str(error), "shapes and types that fit each other"
        ) from None


def infer_fixed(
    model: Any, infer: Callable[[Any], Any], dims: Mapping[str, int], layout: Layout | None = None
) -> Any:
    """`infer(model)`, repeated while evaluating constant nodes of `model` (in place) brings more shapes, or
    `layout`, whose model it is, knows more."""
    inferred = infer(model)
    tried: set[int] = set()
    for _ in range(min(MOST_ROUNDS, MOST_INFERRED // max(1, len(model.graph.node)))):
        shapes = shapes_of(inferred.graph, dims)
        missing = any(out and out not in shapes for node in model.graph.node for out in node.output)
        if not missing:
            return inferred
        evaluated = _evaluate(model.graph, shapes, opset_version(model), tried)
        filled = layout is not None and layout.fill(inferred.graph, shapes, _numbers(model.graph))
        if not evaluated and not filled:
            return inferred
        inferred = infer(model)
    return inferred


def shapes_of(graph: Any, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of all values that have a fixed one, symbolic dimensions looked up in `dims`."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for values in (graph.value_info, graph.output, graph.input):
        for value in values:
            shape = fixed_shape(value.type.tensor_type, dims)
            if shape is not None:
                shapes[value.name] = shape
    return shapes


def _evaluate(graph: Any, shapes: Mapping[str, tuple[int, ...]], opset: int, tried: set[int]) -> bool:
    """Replace what can be evaluated by Constant nodes; whether there was anything. Of the nodes `tried`, by
    place, none is run again."""
    from onnx import helper, numpy_helper

    known = _numbers(graph)
    found = False
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS and node.output:
            continue
        result = _measured(node, shapes)
        if result is None and place not in tried and len(tried) < MOST_EVALUATED and _is_known(node, known):
            tried.add(place)
            result = _run(node, {name: known[name] for name in node.input if name}, opset)
        if result is None:
            continue
        output = node.output[0]
        known[output] = result
        value = numpy_helper.from_array(result, output)
        node.CopyFrom(helper.make_node("Constant", [], [output], name=node.name, value=value))
        found = True
    return found


def _numbers(graph: Any) -> dict[str, Array]:
    """The small weights and constants of a graph, by name."""
    known: dict[str, Array] = {}
    for tensor in graph.initializer:
        known.update(_array(tensor.name, tensor))
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in STANDARD_DOMAINS and node.output:
            known.update(_constant(node))
    return known


def _array(name: str, tensor: Any) -> dict[str, Array]:
    """The tensor's numbers under its name; nothing when it is large, damaged, or in another file."""
    from onnx import TensorProto, numpy_helper

    if len(tensor.dims) > MOST_DIMENSIONS or tensor.data_location == TensorProto.EXTERNAL:
        return {}
    if math.prod(tensor.dims) > MOST_ELEMENTS:
        return {}
    try:
        return {name: numpy_helper.to_array(tensor)}
    except _REFUSALS:
        return {}


def _constant(node: Any) -> dict[str, Array]:
    for attribute in node.attribute:
        if attribute.name == "value":
            return _array(node.output[0], attribute.t)
        if attribute.name in ("value_int", "value_float"):
            number = attribute.i if attribute.name == "value_int" else attribute.f
            kind = np.int64 if attribute.name == "value_int" else np.float32
            return {node.output[0]: np.array(number, dtype=kind)}
        if attribute.name == "value_ints":
            return {node.output[0]: np.array(attribute.ints, dtype=np.int64)}
    return {}


def _is_known(node: Any, known: Mapping[str, Array]) -> bool:
    """Whether the node can be evaluated: its inputs are known."""
    if node.domain not in STANDARD_DOMAINS or len(node.output) != 1 or node.op_type not in _EVALUATED:
        return False
    inputs = [name for name in node.input if name]
    return bool(inputs) and all(name in known for name in inputs)


def _measured(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> Array | None:
    """What a node says that asks for the shape or the size of a value of fixed shape."""
    if node.domain not in STANDARD_DOMAINS or len(node.output) != 1 or len(node.input) != 1:
        return None
    if node.op_type not in ("Shape", "Size") or node.input[0] not in shapes:
        return None
    shape = shapes[node.input[0]]
    if max(shape, default=0) > MAX_BYTES or (node.op_type == "Size" and math.prod(shape) > MAX_BYTES):
        return None
    if node.op_type == "Size":
        return np.array(math.prod(shape), dtype=np.int64)
    cut = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[cut.get("start", 0) : cut.get("end", len(shape))], dtype=np.int64)


def _elements(node: Any, inputs: list[Array]) -> float:
    """At most how many elements the result can have, where it can be more than what goes in."""
    if node.op_type == "ConstantOfShape":
        return float(math.prod(inputs[0].ravel().tolist()))
    if node.op_type == "Expand":
        return float(math.prod(inputs[1].ravel().tolist())) * max(inputs[0].size, 1)
    if node.op_type == "Range":
        start, limit, delta = (float(value.ravel()[0]) if value.size else 0.0 for value in inputs)
        return abs(limit - start) / abs(delta) if delta else math.inf
    return math.prod(max(value.size, 1) for value in inputs) if node.op_type != "Concat" else 0


def _run(node: Any, feeds: dict[str, Array], opset: int) -> Array | None:
    """The node's value by ONNX's reference implementation; None when it has none, refuses
    the inputs, or would be too large."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    try:
        if _elements(node, list(feeds.values())) > MOST_ELEMENTS:
            return None
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph(
            [node], "one", values, [helper.make_empty_tensor_value_info(node.output[0])]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with np.errstate(all="ignore"):
            result = ReferenceEvaluator(model).run(None, feeds)
    except _REFUSALS:
        return None
    first = result[0] if isinstance(result, list) else None
    return np.asarray(first) if isinstance(first, np.ndarray | np.generic) else None
