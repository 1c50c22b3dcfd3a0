"""An ONNX model whose shapes are inferred → Graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from memplan_engine.errors import InputError
from memplan_engine.formats.formula_text import is_symbol_name
from memplan_engine.formats.onnx_model.onnx_layout import Layout, Part
from memplan_engine.formats.onnx_model.onnx_proto import (
    CALLS,
    ELEMENTS,
    STANDARD_DOMAINS,
    Value,
    element_name,
    false_values,
    fixed_shape,
    initializers,
    is_view,
    makes_constant,
    reads,
    symbols,
    value_of,
)
from memplan_engine.graph import Graph, Op, Storage, Tensor, check_graph, storage_role
from memplan_engine.units import count_of, exact

_MOST_NAMED = 5


_SELECTED: dict[str, Callable[[tuple[int, ...]], int]] = {
    "Compress": prod,
    "NonMaxSuppression": lambda scores: 3 * prod(scores),
    "NonZero": lambda shape: max(len(shape), 1) * prod(shape),
    "Unique": prod,
}
"""Operators that select by what the data are, with the most elements of the result."""


class Values:
    """The values of a graph by name: those of fixed shape, and which others there are."""

    def __init__(self, graph: Any, dims: Mapping[str, int], source: str) -> None:
        self._graph, self._dims, self._source = graph, dims, source
        self._types = {
            value.name: value.type
            for values in (graph.value_info, graph.output, graph.input)
            for value in values
        }
        self._weights: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.static = {name for name in (*self._types, *self._weights) if self.shape(name) is not None}
        self.missing: list[str] = []

    def __getitem__(self, name: str) -> Value:
        """The value; one without a fixed shape is noted in `missing` and answered with no bytes."""
        place = f"tensor {name!r}"
        if name in self._weights:
            weight = self._weights[name]
            return value_of(weight.dims, element_name(weight.data_type), place, self._source)
        kind = self._types[name].WhichOneof("value") if name in self._types else None
        if kind not in (None, "tensor_type"):
            found = f"a {kind.removesuffix('_type').replace('_', ' ')}"
            raise InputError(self._source, place, found, "a tensor of fixed size")
        shape = self.shape(name)
        if shape is None:
            self.missing.append(name)
            return Value((), "", 0)
        element = element_name(self._types[name].tensor_type.elem_type)
        return value_of(shape, element, place, self._source)

    def is_fixed(self, name: str) -> bool:
        """Return whether the value is a tensor of fixed size."""
        if name in self._weights:
            return element_name(self._weights[name].data_type) in ELEMENTS
        return name in self.static and element_name(self._types[name].tensor_type.elem_type) in ELEMENTS

    def check_missing(self, layout: Layout) -> None:
        """Raise InputError naming the tensors that were asked for and have no fixed shape, and why the first
        of them has none."""
        if not self.missing:
            return
        names = list(dict.fromkeys(self.missing))
        named = ", ".join(map(repr, names[:_MOST_NAMED]))
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        what = "tensor" if len(names) == 1 else "tensors"
        open_ones = [name for name in symbols(self._graph) if name not in self._dims]
        expected = "fixed shapes: "
        if open_ones:
            quote = "" if all(map(is_symbol_name, open_ones)) else "'"
            expected += f"bind {', '.join(open_ones)} with --dim {quote}NAME=VALUE{quote}"
        else:
            expected += "say them in the model (graph.value_info)"
        cause = self._cause(names[0], layout)
        raise InputError(self._source, f"{what} {named}{more}", f"no fixed shape{cause}", expected)

    def _cause(self, name: str, layout: Layout) -> str:
        """Return why a value has no fixed shape, where that is an op that calls graphs."""
        made = (each for each in zip(self._graph.node, layout.parts, strict=True) if name in each[0].output)
        node, part = next(made, (None, None))
        if node is None or part is None or node.op_type not in CALLS:
            return ""
        if node.op_type != "If":
            return f", as it depends on the turns that {part.name!r} makes"
        sources = next((link.sources for link in layout.links if link.target == name), ())
        shapes = [shape for source in sources if (shape := self.shape(source)) is not None]
        if len(shapes) < 2 or shapes[0] == shapes[1]:
            return ""
        both = f"{shapes[0]} and {shapes[1]}"
        return f", as the branches of {part.name!r} give {both}, neither larger along each axis"

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor; None where it is not fixed."""
        if name in self._weights:
            return tuple(self._weights[name].dims)
        if name not in self._types or self._types[name].WhichOneof("value") != "tensor_type":
            return None
        return fixed_shape(self._types[name].tensor_type, self._dims)


def to_graph(model: Any, path: Path, dims: Mapping[str, int], layout: Layout) -> Graph:
    """The checked graph of a ModelProto, which is that of `layout` with its shapes inferred; see OnnxImporter
    for what counts as what."""
    source, graph = path.name, model.graph
    values = Values(graph, dims, source)
    weights = initializers(graph)
    ops = _ops(model, values, layout)
    inputs = tuple(value.name for value in graph.input if value.name not in weights)
    outputs = tuple(dict.fromkeys(value.name for value in graph.output))
    wanted = dict.fromkeys(name for op in ops.ops for name in op.inputs)
    wanted.update(dict.fromkeys(outputs))
    used_constants = tuple(name for name in wanted if name in ops.constants)
    made = [name for op in ops.ops for name in op.outputs]
    everything = [*inputs, *used_constants, *made]
    _check_once(everything, source)
    tensors = []
    for name in everything:
        value = values[name]
        tensors.append(Tensor(name, value.shape, value.dtype, value.nbytes, ops.homes.get(name, name)))
    values.check_missing(layout)
    lists = {"inputs": inputs, "constants": used_constants, "outputs": outputs}
    storages = _storages(tensors, lists)
    notes = _folding(graph, set(wanted), ops.constants, values)
    result = Graph(path.stem, storages, tuple(tensors), ops.ops, inputs, outputs, used_constants, notes=notes)
    return check_graph(result, source)


def check_selected(graph: Any, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raise InputError for a result of a selection that has more elements than there are to select."""
    for node in graph.node:
        if node.op_type not in _SELECTED or node.domain not in STANDARD_DOMAINS or not node.output:
            continue
        scores = node.op_type == "NonMaxSuppression"
        name, given = node.output[0], "".join(node.input[1:2] if scores else node.input[:1])
        if name in shapes and given in shapes:
            most = _SELECTED[node.op_type](shapes[given])
            if prod(shapes[name]) > most:
                expected = f"at most {most:,} elements, as {given!r} is {shapes[given]}"
                raise InputError(source, f"tensor {name!r}", f"the shape {shapes[name]}", expected)


def unknown_calls(model: Any, dims: Mapping[str, int], layout: Layout, source: str) -> frozenset[str]:
    """Return the calls inside which a value has no fixed size, or changes its shape from turn to turn."""
    values = Values(model.graph, dims, source)
    ops = _ops(model, values, layout)
    unknown = set()
    for op in ops.ops:
        read = [name for name in op.inputs if name in ops.constants]
        if op.within and not all(values.is_fixed(name) for name in (*op.outputs, *read)):
            unknown.add(op.within[-1][0])
        carried = layout.calls[op.name].carried if op.name in layout.calls else ()
        if any(values.shape(before) != values.shape(after) for before, after in carried):
            unknown.add(op.name)
    return frozenset(unknown)


class _Ops(NamedTuple):
    """The ops of a model, the names of its constants, and the storages of values that live in others'."""

    ops: tuple[Op, ...]
    constants: set[str]
    homes: dict[str, str]


def _ops(model: Any, values: Values, layout: Layout) -> _Ops:
    graph = model.graph
    versions = {entry.domain: entry.version for entry in model.opset_import}
    constants, kept = _fold(graph, initializers(graph), values, layout)
    homes, shared = _homes(graph, versions.get("", 0), kept, layout)
    kept = [index for index in kept if not shared.keys() & set(graph.node[index].output)]
    inputs = {index: _inputs(graph.node[index], layout.parts[index], shared) for index in kept}
    wanted = dict.fromkeys(name for names in inputs.values() for name in names)
    wanted.update(dict.fromkeys(value.name for value in graph.output))
    ops = tuple(
        _op(layout.parts[index], graph.node[index], inputs[index], wanted, versions) for index in kept
    )
    return _Ops(ops, constants, homes)


def _inputs(node: Any, part: Part, shared: Mapping[str, str]) -> tuple[str, ...]:
    names = reads(node) if part.follows is None else part.inputs
    return tuple(dict.fromkeys(shared.get(name, name) for name in names))


def _fold(graph: Any, weights: set[str], values: Values, layout: Layout) -> tuple[set[str], list[int]]:
    """The names of all constants, and the indices of the nodes that are left as ops."""
    constants, kept = set(weights), []
    for index, (node, part) in enumerate(zip(graph.node, layout.parts, strict=True)):
        if part.follows is None:
            folded = makes_constant(node, constants, values.static)
        else:
            folded = not part.stays and constants.issuperset(part.follows)
        if folded:
            constants.update(name for name in node.output if name)
        else:
            kept.append(index)
    return constants, kept


def _folding(graph: Any, wanted: set[str], constants: set[str], values: Values) -> tuple[str, ...]:
    """Return the note that says what nodes on weights alone come to; () where there are none."""
    maker = {out: node for node in graph.node for out in node.output if out and node.op_type != "Constant"}
    made = [name for name in wanted if name in constants and name in maker]
    sources: set[str] = set()
    pending, seen = list(made), set(made)
    while pending:
        for name in reads(maker[pending.pop()]):
            if name not in maker:
                sources.add(name)
            elif name not in seen:
                seen.add(name)
                pending.append(name)
    sources &= constants
    if not sources:
        return ()
    after = sum(values[name].nbytes for name in made)
    before = sum(values[name].nbytes for name in sources - wanted)
    nodes = count_of(sum(not seen.isdisjoint(node.output) for node in graph.node), "node")
    return (f"{nodes} on weights alone folded before the run: {exact(after)} instead of {exact(before)}",)


def _op(
    part: Part, node: Any, inputs: tuple[str, ...], wanted: Mapping[str, None], versions: Mapping[str, int]
) -> Op:
    optional = _optional_outputs(node, versions)
    outputs = tuple(
        out for place, out in enumerate(node.output) if out and (out in wanted or place not in optional)
    )
    is_plain = node.domain in STANDARD_DOMAINS or part.follows is not None
    kind = node.op_type if is_plain else f"{node.domain}.{node.op_type}"
    return Op(part.name, kind, inputs, outputs, module=module_path(node.name), within=part.path)


def _optional_outputs(node: Any, versions: Mapping[str, int]) -> set[int]:
    """The places of the outputs that the operator's schema calls optional; none when it has no schema."""
    from onnx import defs

    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(domain, versions.get("ai.onnx", 1) if not domain else 1)
    if not defs.has(node.op_type, version, domain):
        return set()
    formal = defs.get_schema(node.op_type, version, domain).outputs
    optional = defs.OpSchema.FormalParameterOption.Optional
    return {place for place, output in enumerate(formal) if output.option == optional}


def module_path(node_name: str) -> str:
    """The module in a node's name: "/features/features.0/conv/Conv" → "features.0.conv"; "" without one."""
    parts: list[str] = []
    for part in node_name.strip("/").split("/")[:-1]:
        # A list of modules and its member both stand in the name: "features", "features.0".
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def _homes(
    graph: Any, opset: int, kept: Sequence[int], layout: Layout
) -> tuple[dict[str, str], dict[str, str]]:
    """Value → the one in whose storage it lives; and copies of results of branches that need not be made, as
    the results themselves become outputs.

    A result does where its branch has made it, and no other output has it already.
    """
    false = false_values(graph)
    homes: dict[str, str] = {}
    becomes: dict[str, str] = {}
    shared: dict[str, str] = {}
    makers: dict[str, tuple[tuple[str, str], ...]] = {}
    ops = set(kept)
    for index, (node, part) in enumerate(zip(graph.node, layout.parts, strict=True)):
        if index in ops:
            makers.update(dict.fromkeys(node.output, part.path))
        for out in node.output:
            if out in layout.copies:
                result, target = layout.copies[out]
                root = homes.get(result, result)
                if makers.get(root, ())[: len(part.path)] == part.path and root not in becomes:
                    becomes[root], shared[out] = target, result
                else:
                    becomes[out] = target
            elif out in layout.homes:
                homes[out] = homes.get(layout.homes[out], layout.homes[out])
        if node.input and node.output and node.input[0] and is_view(node, opset, false):
            homes[node.output[0]] = homes.get(node.input[0], node.input[0])
    for name in (*homes, *becomes):
        home = homes.get(name, name)
        while home in becomes:
            home = becomes[home]
        homes[name] = home
    return homes, shared


def _check_once(names: list[str], source: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(source, f"tensor {name!r}", "several producers", "one producer for each tensor")
        seen.add(name)


def _storages(tensors: list[Tensor], lists: dict[str, tuple[str, ...]]) -> tuple[Storage, ...]:
    home = {tensor.name: tensor.storage for tensor in tensors}
    owned = {kind: {home[name] for name in names} for kind, names in lists.items()}
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.storage] = max(sizes.get(tensor.storage, 0), tensor.nbytes)
    return tuple(Storage(name, nbytes, storage_role(name, **owned)) for name, nbytes in sizes.items())
