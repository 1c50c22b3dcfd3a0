"""Lay ONNX models flat: the nodes inside If, Loop and Scan come right before them.

Of an If both branches are laid out, of a Loop and a Scan a turn that is not the first: the values that it
starts with are results of the turn before. Names inside have those of the node and the branch in front:
"If_2.then.x". What such a node keeps meanwhile, and what it gives, is made by nodes of DOMAIN.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from memplan_engine.formats.onnx_model.onnx_layout import (
    DOMAIN,
    Call,
    Layout,
    Link,
    Part,
    Pattern,
    Turns,
    as_it_is,
    counted,
    final,
    largest,
    of_one,
    row,
    same,
    sizes_of,
    stacked,
    tensor_type,
    values_of,
)
from memplan_engine.formats.onnx_model.onnx_proto import (
    CALLS,
    STANDARD_DOMAINS,
    fixed_shape,
    initializers,
    node_names,
    opset_version,
    reads,
    stays,
    subgraphs,
)
from memplan_engine.graph import Path

INT64, BOOL = 7, 9
"""Element types of a trip count and a condition."""
_BATCHES_BEFORE = 9
"""Before this version of the operator set, Scan took batches of sequences."""


def lay_out(model: Any, left: frozenset[str] = frozenset(), known: Mapping[str, int] | None = None) -> Layout:
    """Return `model`, whose shapes are inferred, with what is inside its calls laid flat.

    Those in `left` stay as they are. `known` is what is `decided` of others.
    """
    if not runs_graphs(model.graph):
        return as_it_is(model)
    flat = type(model)()
    flat.ir_version = model.ir_version
    flat.opset_import.extend(model.opset_import)
    for values in ("input", "output", "value_info", "initializer"):
        getattr(flat.graph, values).extend(getattr(model.graph, values))
    flattening = _Flattening(Layout(flat, []), left, known or {}, opset_version(model))
    flattening.values.update(_value_names(model.graph))
    flattening.ops.update(node_names(model.graph))
    flattening.types.update((value.name, value.type) for value in values_of(model.graph))
    for tensor in model.graph.initializer:
        flattening.types[tensor.name] = tensor_type(tensor.data_type, tensor.dims)
    flattening.nodes(model.graph, "", (), ChainMap())
    for node in flat.graph.node:
        flattening.layout.made_of.update(dict.fromkeys(node.output, reads(node)))
    return flattening.layout


@dataclass(slots=True)
class _Node:
    """A node that is laid out: its op's name, what that is inside, and the flat names of what it reads, also
    inside, and makes."""

    proto: Any
    name: str
    path: Path
    inputs: list[str]
    outputs: list[str]
    reads: tuple[str, ...]

    def graph(self, attribute: str) -> Any:
        return next(each.g for each in self.proto.attribute if each.name == attribute)

    def inside(self, branch: str) -> tuple[str, Path]:
        """Return what names in `branch` begin with, and the path of its ops."""
        return f"{self.name}.{branch}.", (*self.path, (self.name, branch))


@dataclass(frozen=True, slots=True)
class _Loop:
    """A Loop or a Scan: the values that it starts with, `initial`, those whose rows it takes, `scanned`,
    along `axes`, and the axes along which it puts rows together, `stacking`. `counters` are the trip count
    and the condition of a Loop. `batches` says that all this is of a batch of sequences."""

    initial: list[str]
    counters: list[str] = field(default_factory=list)
    scanned: list[str] = field(default_factory=list)
    axes: list[int] = field(default_factory=list)
    stacking: list[int] = field(default_factory=list)
    batches: bool = False


@dataclass(slots=True)
class _Flattening:
    """A model that is being laid flat: `types` are those of its values so far, `values` and `ops` the names
    in use."""

    layout: Layout
    left: frozenset[str]
    known: Mapping[str, int]
    version: int
    types: dict[str, Any] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)
    ops: set[str] = field(default_factory=set)

    def nodes(self, graph: Any, prefix: str, path: Path, names: ChainMap[str, str]) -> None:
        """Add the nodes of a graph. `names` has the flat names of the values that they read, and gets those
        of the values that they make."""
        types = {value.name: value.type for value in (*graph.output, *graph.value_info)} if path else {}
        for own, node in zip(node_names(graph), graph.node, strict=True):
            name = _free(prefix, own, self.ops)
            made = {out: _free(prefix, out, self.values) for out in node.output if out}
            outputs = [made.get(out, "") for out in node.output]
            if _runs_graphs(node) and name not in self.left and _is_sound(node, self.version):
                inputs = [names.get(each, each) for each in node.input]
                everything = tuple(names.get(each, each) for each in reads(node))
                call = _Node(node, name, path, inputs, outputs, everything)
                (self._if if node.op_type == "If" else self._loop)(call, names)
            else:
                self.layout.parts.append(Part(name, path))
                copy = self.layout.model.graph.node.add()
                copy.CopyFrom(node)
                if path:
                    copy.output[:] = outputs
                    _rename(copy, names, set())
            for out in [out for out in made if out in types]:
                self._declare(made[out], types[out])
            names.update(made)

    def _graph(self, graph: Any, prefix: str, path: Path, names: ChainMap[str, str]) -> list[str]:
        """Add what is in a graph inside a node, whose inputs are in `names`; return its results."""
        given = {value.name for value in graph.input}
        for tensor in graph.initializer:
            if tensor.name not in given:
                names[tensor.name] = _free(prefix, tensor.name, self.values)
                weight = self.layout.model.graph.initializer.add()
                weight.CopyFrom(tensor)
                weight.name = names[tensor.name]
                self.types[weight.name] = tensor_type(tensor.data_type, tensor.dims)
        self.nodes(graph, prefix, path, names)
        return [names.get(value.name, value.name) for value in graph.output]

    def _declare(self, name: str, kind: Any) -> None:
        self.types[name] = kind
        self.layout.model.graph.value_info.add(name=name).type.CopyFrom(kind)

    def _link(
        self, target: str, sources: Sequence[str], shape: Callable[..., Pattern | None], control: str = ""
    ) -> None:
        if target:
            self.layout.links.append(Link(target, tuple(sources), shape, control))

    def _add(self, call: _Node, part: Part, kind: str, outputs: Sequence[str]) -> None:
        """Add a node of DOMAIN that makes `outputs`."""
        self.layout.parts.append(part)
        self.layout.model.graph.node.add(
            op_type=kind, domain=DOMAIN, name=call.proto.name, input=part.inputs, output=outputs
        )

    def _step(
        self, call: _Node, branch: str, label: str, outputs: Sequence[str], inputs: Sequence[str] = ()
    ) -> None:
        """Add what `call` does in a branch next to the branch's own nodes; nothing where it makes nothing."""
        if outputs:
            name = _free(f"{call.name}.", label, self.ops)
            part = Part(name, call.inside(branch)[1], tuple(inputs), call.reads, stays(call.proto))
            self._add(call, part, f"{call.proto.op_type}.{label}", outputs)

    def _copies(self, call: _Node, branch: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
        """Add copies of results of a branch, each with the output that it becomes; return their names."""
        copies: list[str] = []
        for source, target in pairs:
            if target:
                copy = _free(f"{call.name}.", f"{branch}_{len(copies)}", self.values)
                copies.append(copy)
                self.layout.copies[copy] = source, target
                self._link(copy, (source,), same)
                self._step(call, branch, "copy", (copy,), (source,))
        return copies

    def _if(self, call: _Node, names: ChainMap[str, str]) -> None:
        taken, kind = self.known.get(call.name), "If"
        results: list[list[str]] = []
        held: list[str] = []
        for number, branch in ((1, "then"), (0, "else")):
            if taken in (None, number):
                graph = call.graph(f"{branch}_branch")
                results.append(held := self._graph(graph, *call.inside(branch), names.new_child()))
                if taken is None:
                    held = self._copies(call, branch, zip(held, call.outputs, strict=False))
                else:
                    kind = f"If.{branch}"
        for out, sources in zip(call.outputs, zip(*results, strict=False), strict=False):
            self._link(out, sources, largest, call.inputs[0])
            if taken is not None and out:
                self.layout.homes[out] = sources[0]
        # A branch that is always taken runs as if it stood outside.
        read = call.reads if taken is None else ()
        inputs = tuple(dict.fromkeys((*read, *held)))
        follows = call.reads if taken is None else inputs
        self.layout.calls[call.name] = Call(call.inputs[0])
        self._add(call, Part(call.name, call.path, inputs, follows, stays(call.proto)), kind, call.outputs)

    def _loop(self, call: _Node, names: ChainMap[str, str]) -> None:
        """Lay out a Loop or a Scan."""
        loop, body = self._loop_of(call), call.graph("body")
        if self.known.get(call.name) == 0:
            self._skipped(call, loop)
            return
        prefix, path = call.inside("body")
        count, skipped = len(loop.initial), len(loop.counters)
        finals = (call.outputs + [""] * count)[:count]
        together = [out for out in call.outputs[0 if loop.batches else count :] if out]
        own = f"{call.name}."
        ahead = {_free(own, f"out_{number}", self.values): out for number, out in enumerate(together)}
        for name, out in ahead.items():
            self.layout.homes[name] = out
            self._link(name, (out,), same)
        self._step(call, "body", "outputs", [*ahead])
        inner = names.new_child(dict(zip([v.name for v in body.input[skipped:]], loop.initial, strict=False)))
        carried = self._carried(call, loop, body.input[: skipped + count])
        rows = self._rows(call, loop, body.input[skipped + count :])
        inner.update({**carried, **rows})
        given = self._graph(body, prefix, path, inner)
        results = given[1:] if loop.counters else given
        ends, pieces = results[:count], results[count:]
        starts = [inner[value.name] for value in body.input[skipped : skipped + count]]
        turns = self._turns(call, loop, body, given)
        for place, (start, end, out) in enumerate(zip(starts, ends, finals, strict=True)):
            always = sizes_of(body.output[len(given) - len(results) + place].type)
            if turns.first and self.known.get(call.name) == 1:
                self._link(out, (end, start), largest, turns.first)
            else:
                sources = (end, start, *loop.scanned[:1])
                self._link(out, sources, partial(final, loop.batches, turns, always))
        for number, (piece, out) in enumerate(zip(pieces, call.outputs[count:], strict=False)):
            if loop.counters:
                self._link(out, (piece,), partial(counted, turns))
            else:
                axes = (loop.axes[0], loop.stacking[number])
                self._link(out, (piece, loop.scanned[0]), partial(stacked, axes, loop.batches))
        held = [] if loop.batches else self._copies(call, "body", zip(ends, finals, strict=True))
        kept = [name for name in (*carried.values(), *rows.values()) if name not in self.layout.homes]
        inputs = tuple(dict.fromkeys((*call.reads, *ahead, *kept, *given, *held)))
        pairs = tuple(pair for pair in zip(starts, ends, strict=True) if pair[0] in carried.values())
        self.layout.calls[call.name] = Call(turns=turns, carried=pairs)
        part = Part(call.name, call.path, inputs, call.reads, stays(call.proto))
        self._add(call, part, call.proto.op_type, call.outputs)

    def _skipped(self, call: _Node, loop: _Loop) -> None:
        """Add a Loop or a Scan that makes no turn: it copies the values that it starts with."""
        for source, out in zip(loop.initial, call.outputs, strict=False):
            self._link(out, (source,), same)
        self.layout.calls[call.name] = Call()
        part = Part(call.name, call.path, call.reads, call.reads, stays(call.proto))
        self._add(call, part, f"{call.proto.op_type}.skipped", call.outputs)

    def _turns(self, call: _Node, loop: _Loop, body: Any, given: Sequence[str]) -> Turns:
        """Return how many turns there are; `given` are the results of one."""
        if loop.batches:
            return Turns()
        if loop.scanned:
            return Turns(scanned=loop.scanned[0], axis=loop.axes[0])
        return Turns(loop.counters[0], loop.counters[1], _goes_on(body, given[0]))

    def _loop_of(self, call: _Node) -> _Loop:
        if call.proto.op_type == "Loop":
            return _Loop(call.inputs[2:], call.inputs[:2])
        batches = self.version < _BATCHES_BEFORE
        inputs = call.inputs[1:] if batches else call.inputs
        numbers = {each.name: each for each in call.proto.attribute}
        count = numbers["num_scan_inputs"].i
        scanned = inputs[len(inputs) - count :]
        outputs = len(call.graph("body").output) - len(inputs) + count
        axes = [*numbers["scan_input_axes"].ints] if "scan_input_axes" in numbers else [0] * count
        axes = [self._positive(axis, name) for axis, name in zip(axes, scanned, strict=True)]
        stacking = [*numbers["scan_output_axes"].ints] if "scan_output_axes" in numbers else [0] * outputs
        return _Loop(inputs[: len(inputs) - count], [], scanned, axes, stacking, batches)

    def _positive(self, axis: int, name: str) -> int:
        known = self.types.get(name)
        return axis + len(known.tensor_type.shape.dim) if axis < 0 and known is not None else axis

    def _carried(self, call: _Node, loop: _Loop, values: Sequence[Any]) -> dict[str, str]:
        """Add what makes the values that a turn starts with; return their names."""
        count, only = len(loop.counters), call.name in self.known and not loop.batches
        fresh = values[:count] if only else values
        names = {value.name: _free(call.inside("body")[0], value.name, self.values) for value in fresh}
        sources = (*loop.counters, *loop.initial)
        for place, (value, source) in enumerate(zip(fresh, sources, strict=False)):
            kind = self.types.get(source, value.type)
            if place < count:
                kind = tensor_type((INT64, BOOL)[place], fixed_shape(value.type.tensor_type, {}) or ())
            elif loop.batches:
                kind = tensor_type(kind.tensor_type.elem_type, None)
            self._declare(names[value.name], kind)
            if source:
                self._link(names[value.name], (source,), of_one if loop.batches else same)
        self._step(call, "body", "carried", [*names.values()])
        return names

    def _rows(self, call: _Node, loop: _Loop, values: Sequence[Any]) -> dict[str, str]:
        """Add what takes the rows for a turn; return their names."""
        names = {value.name: _free(call.inside("body")[0], value.name, self.values) for value in values}
        for name, source, axis in zip(names.values(), loop.scanned, loop.axes, strict=True):
            kind = self.types.get(source, values[0].type)
            self._declare(name, tensor_type(kind.tensor_type.elem_type, None))
            self._link(name, (source,), partial(row, axis, loop.batches))
            # One that is not in one piece is copied.
            if axis == 0 or loop.batches:
                self.layout.homes[name] = source
        self._step(call, "body", "rows", [*names.values()], loop.scanned)
        return names


def runs_graphs(graph: Any) -> bool:
    """Return whether one of the nodes of a graph may be laid out."""
    return any(_runs_graphs(node) for node in graph.node)


def _runs_graphs(node: Any) -> bool:
    return node.op_type in CALLS and node.domain in STANDARD_DOMAINS


def _is_sound(node: Any, version: int) -> bool:
    """Return whether a node and its graphs have the inputs and outputs that they need."""
    graphs = {each.name: each.g for each in node.attribute if each.HasField("g")}
    if node.op_type == "If":
        branches = [graphs.get("then_branch"), graphs.get("else_branch")]
        return len(node.input) == 1 and all(
            each is not None and not each.input and len(each.output) == len(node.output) for each in branches
        )
    body = graphs.get("body")
    if body is None or len({value.name for value in body.input}) != len(body.input):
        return False
    if node.op_type == "Loop":
        most = max(len(node.input) - 2, len(node.output))
        return len(node.input) == len(body.input) >= 2 and all(node.input[2:]) and len(body.output) > most
    numbers = {each.name: each for each in node.attribute}
    batched = version < _BATCHES_BEFORE
    inputs = len(node.input) - batched
    scanned = numbers["num_scan_inputs"].i if "num_scan_inputs" in numbers else 0
    states = inputs - scanned
    axes = len(numbers["scan_input_axes"].ints) if "scan_input_axes" in numbers else scanned
    pieces = len(body.output) - states
    stacking = len(numbers["scan_output_axes"].ints) if "scan_output_axes" in numbers else pieces
    return (
        inputs == len(body.input)
        and all(node.input[batched:])
        and 1 <= scanned <= inputs
        and len(body.output) >= max(states, len(node.output))
        and (axes, stacking) == (scanned, pieces)
    )


def _rename(node: Any, names: Mapping[str, str], own: set[str]) -> None:
    """Rename what a node and its sub-graphs read to flat names, except values in `own`."""
    node.input[:] = [each if each in own else names.get(each, each) for each in node.input]
    for graph in subgraphs(node):
        inner = own | {value.name for value in graph.input} | initializers(graph)
        for each in graph.node:
            _rename(each, names, inner)
            inner.update(each.output)
        for value in graph.output:
            if value.name not in inner:
                value.name = names.get(value.name, value.name)


def _goes_on(body: Any, result: str) -> tuple[str, ...]:
    """Return the values that have to be true for a Loop to make more turns. `result` is the condition that
    its body gives."""
    makers = {out: node for node in body.node for out in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return () if name == body.input[1].name else (result,)


def _free(prefix: str, own: str, taken: set[str]) -> str:
    """Return the flat name of what is called `own` in a graph, and take it; without a prefix, `own`."""
    name = prefix + own
    while prefix and name in taken:
        name += "_"
    taken.add(name)
    return name


def _value_names(graph: Any) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
