"""A model exported for a static runtime: with plain sizes, or dynamic ones that are plain in each call; and
the graph of a call, in which every size is a plain number and constants are worked out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.runtime.program import (
    Program,
    load_program,
    program_and_inputs,
    program_from_module,
)
from memplan_engine.runtime.signature import Expected, call_form, check_call, check_inputs, flatten_call
from memplan_engine.torch_capture.capture_module import dynamic_shapes_of, exporting, fake_inputs
from memplan_engine.torch_capture.torch_dims import Symbols
from memplan_engine.torch_capture.torch_exporting import export_as_eager
from memplan_engine.torch_capture.torch_fake import FakeTwins, fake_mode, quiet, storage_of, tensors_of
from memplan_engine.torch_capture.torch_graph import assemble, plain_operators
from memplan_engine.torch_capture.torch_operators import is_repeatable, written_nodes
from memplan_engine.torch_capture.torch_run import (
    Run,
    Slot,
    is_arithmetic_on_sizes,
    is_higher_order,
    labels,
    look_up,
)

OWN = ("aten", "prims")
"""Namespaces of torch's own operators, which do what their schemas say."""


def call_of(
    inputs: Sequence[Any] | Mapping[str, Any], kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`inputs` as positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(kwargs or {})}
    if not isinstance(inputs, (tuple, list)) or not isinstance(kwargs or {}, Mapping):
        found = f"{type(inputs).__name__} and {type(kwargs).__name__}"
        raise InputError("static runtime", "inputs", found, "a tuple of arguments or a dict of them by name")
    return tuple(inputs), dict(kwargs or {})


def returned(program: Program, values: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """What `forward` returns, of the flat outputs `values`."""
    if program.written.count(None) != len(program.written):
        return program.outputs(values, [*program.state, *leaves])
    if program.out_spec.is_leaf():
        return values[0]
    return pytree.tree_unflatten(values, program.out_spec)


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A captured model. `program` is that of the example inputs; `values` are the flat inputs as captured
    (fake tensors, with symbolic sizes where `symbols` has any, and plain values). Where all arguments are
    tensors, `plain` is how many there are, if all are given by place, and `named` are their names (`names`
    the same as a set), if all are given by name."""

    program: Program
    values: tuple[Any, ...]
    symbols: Symbols
    plain: int | None
    named: tuple[str, ...]
    names: frozenset[str]

    @property
    def name(self) -> str:
        """The model's."""
        return self.program.name

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The flat inputs of a call. Raises InputError for one of another form."""
        # The usual calls, without a walk through nested forms.
        if self.plain is not None and not kwargs and len(args) == self.plain == _count(args):
            return list(args)
        if (
            self.named
            and not args
            and kwargs.keys() == self.names
            and len(self.named) == _count(kwargs.values())
        ):
            return [kwargs[name] for name in self.named]
        return flatten_call(self.program.form, self.name, args, kwargs)

    def specialised(self, leaves: Sequence[Any]) -> Program:
        """The program for inputs of the sizes of `leaves`, in which all sizes are plain numbers and what
        depends on no input or weight is worked out already: further constants of its `state`.

        Raises
        ------
        InputError: inputs that `forward`, as it was captured, would not take; sizes that depend on the data.
        """
        expected = self._expected(leaves)
        check_inputs(expected, leaves, self.name)
        program = self.program
        count = len(program.state)
        flat = [*program.state, *leaves]
        specialised = specialise(program.module, flat, count, self.name)
        whole = [*program.state, *specialised.constants, *leaves]
        count += len(specialised.constants)
        plain = program_from_module(
            specialised.module, whole, state=count, name=self.name, graph=specialised.graph
        )
        return replace(
            plain, expected=expected, written=program.written, form=program.form, out_spec=program.out_spec
        )

    def _expected(self, leaves: Sequence[Any]) -> tuple[Expected, ...]:
        """What each input must be, given the sizes that the dynamic dimensions have here."""
        if not self.symbols.ranges:
            return self.program.expected
        names = [entry.name for entry in self.program.expected]
        numbers = self.symbols.solve(names, self.values, leaves, self.name)
        return tuple(
            Expected(
                name,
                self.symbols.numbers(value.shape, numbers),
                value.dtype,
                value.device,
                self.symbols.numbers(value.stride(), numbers),
            )
            if isinstance(value, torch.Tensor)
            else Expected(name, value=value)
            for name, value in zip(names, self.values, strict=True)
        )


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> Export:
    """Export `model(*args, **kwargs)`; `dynamic_shapes` as `capture` takes them.

    Raises
    ------
    InputError: as `load_program` does; a dimension that the model does not leave free.
    """
    if dynamic_shapes is None:
        program = load_program(model, args, kwargs, name=name)
        nodes = program.module.graph.find_nodes(op="placeholder")[len(program.state) :]
        return _export(program, tuple(node.meta.get("val") for node in nodes), Symbols({}))
    label = name or type(model).__name__
    check_call(model, args, kwargs, label)
    shapes = dynamic_shapes_of(dynamic_shapes, model, args, kwargs, label)
    with exporting(label, dynamic=True), torch.no_grad():
        # Dataclasses among the inputs are made known to torch.export on the way.
        fake_inputs((list(args), dict(kwargs)), FakeTwins(fake_mode()))
        # No values of the example inputs: other calls bring other ones, and other sizes.
        exported, _ = export_as_eager(
            model,
            tuple(args),
            dict(kwargs),
            ((), {}),
            label,
            dynamic_shapes=shapes,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        return _dynamic(plain_operators(exported), model, label)


def _dynamic(exported: torch.export.ExportedProgram, model: torch.nn.Module, name: str) -> Export:
    """The Export of a program with symbols. Its `program` can be called only once it is specialised; its
    Graph is a stub."""
    form = call_form(model, exported.call_spec.in_spec)
    program, inputs = program_and_inputs(exported, Graph(name, (), (), (), (), (), ()), name, form)
    ranges = {symbol: (bounds.lower, bounds.upper) for symbol, bounds in exported.range_constraints.items()}
    return _export(program, inputs, Symbols(ranges))


def _export(program: Program, values: tuple[Any, ...], symbols: Symbols) -> Export:
    positional, keywords = program.form.spec.children()
    tensors = _count(values) == len(values)
    flat = tensors and all(child.is_leaf() for child in (*positional.children(), *keywords.children()))
    names = tuple(map(str, keywords.context or ()))
    plain = positional.num_children if flat and not names else None
    named = names if flat and not positional.num_children else ()
    return Export(program, values, symbols, plain, named, frozenset(names))


def _count(values: Iterable[Any]) -> int:
    """How many of `values` are tensors."""
    return sum(1 for value in values if isinstance(value, torch.Tensor))


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """`module` for inputs of certain sizes; its placeholders are the weights, `constants` and the inputs.
    `graph` is the same as memplan sees it."""

    module: GraphModule
    constants: list[torch.Tensor]
    graph: Graph


def specialise(module: GraphModule, inputs: Sequence[Any], state: int, name: str) -> Specialised:
    """`module` for inputs of the sizes of `inputs`, one for each placeholder, the first `state` of them
    weights. Asking for sizes and reckoning with them is done; so are operators that depend on nothing but
    numbers (masks, positions), whose results are placeholders behind the weights. What is random, mutated or
    returned is left as it is.

    Raises
    ------
    InputError: sizes that the graph's own checks refuse, an operator that fake tensors cannot run.
    """
    looked = _Looked(module, inputs, state, name)
    with torch.no_grad(), quiet():
        constants = looked.constants()
        needed = looked.needed(constants)
        built = looked.build(constants, needed)
        return Specialised(built, list(constants.values()), looked.describe(constants, needed))


class _Looked:
    """A graph that was run on fake twins of `inputs`: what each node gave, and `values`, these without the
    names of tensors (plain ones for sizes)."""

    def __init__(self, module: GraphModule, inputs: Sequence[Any], state: int, name: str) -> None:
        self.module, self.state = module, state
        self.run = Run(name)
        self.slots: dict[Node, Slot] = {}
        self.placeholders = module.graph.find_nodes(op="placeholder")
        arguments = [
            self.run.take(node.name, value, index < state)
            for index, (node, value) in enumerate(zip(self.placeholders, inputs, strict=True))
        ]
        self.run.run(module, arguments, self.slots)
        self.values = {node: slot.value for node, slot in self.slots.items()}

    def constants(self) -> dict[Node, torch.Tensor]:
        """The results of operators that depend on nothing else, of those that others read."""
        changing = self._changing()
        real: dict[Node, torch.Tensor] = {}
        for node in self.module.graph.nodes:
            computed = _computes(node) and isinstance(self.values[node], torch.Tensor)
            if not computed or not changing.isdisjoint(self._storages(node)):
                continue
            if all(source in real or self._is_plain(source) for source in node.all_input_nodes):
                env = {**self.values, **real}
                args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
                real[node] = node.target(*args, **kwargs)
        return {node: value for node, value in real.items() if any(user not in real for user in node.users)}

    def needed(self, constants: Collection[Node]) -> set[Node]:
        """What the outputs depend on, and what does more than to give a result."""
        needed: set[Node] = set()
        for node in reversed(self.module.graph.nodes):
            acts = node.op == "call_function" and not _computes(node) and not self._is_plain(node)
            if acts or node.op == "output" or any(u in needed and u not in constants for u in node.users):
                needed.add(node)
        return needed

    def build(self, constants: Collection[Node], needed: set[Node]) -> GraphModule:
        """The new graph, in which `constants` are placeholders behind the weights."""
        graph, env = torch.fx.Graph(), {}
        for node in (*self.placeholders[: self.state], *constants, *self.placeholders[self.state :]):
            env[node] = self._with_value(graph.placeholder(node.name), node)
        for node in self.module.graph.nodes:
            if node.op == "output":
                graph.output(map_arg(node.args[0], lambda used: self._read(used, env)))
            elif node in needed and node not in env and not self._is_number(node):
                env[node] = self._with_value(graph.node_copy(node, lambda used: self._read(used, env)), node)
        graph.lint()
        module = GraphModule(self.module, graph)
        module.meta.update(self.module.meta)
        return module

    def describe(self, constants: Collection[Node], needed: set[Node]) -> Graph:
        """The new graph as memplan sees it."""
        run, names = self.run, {node.name for node in (*self.placeholders, *constants, *needed)}
        run.ops = [op for op in run.ops if _root(op.name) in names - {node.name for node in constants}]
        run.tensors = {label: tensor for label, tensor in run.tensors.items() if _root(label) in names}
        run.storages = {label: run.storages[label] for label in run.tensors}
        results = [label for node in constants for label in labels(self.slots[node].names)]
        run.constants = [label for label in (*run.constants, *results) if _root(label) in names]
        return assemble(run, look_up(self.module.graph.output_node().args[0], self.slots))

    def _read(self, node: Node, env: Mapping[Node, Node]) -> Any:
        """The new node, or the plain value that `node` has."""
        return self.values[node] if self._is_number(node) else env[node]

    def _is_number(self, node: Node) -> bool:
        return node.op == "call_function" and self._is_plain(node)

    def _with_value(self, new: Node, node: Node) -> Node:
        # In the shape and strides of that moment: an op may change them in place later on.
        slot, tensors = self.slots[node], self.run.tensors
        value = pytree.tree_map(lambda leaf, name: tensors.get(name, leaf), slot.value, slot.names)
        new.meta = {**node.meta, "val": value}
        return new

    def _is_plain(self, node: Node) -> bool:
        """Whether the value of `node` is known before the run: a number, or a check of numbers."""
        value = self.values[node] if node.op in ("call_function", "placeholder") else node
        if node.op == "call_function" and value is None:
            return is_arithmetic_on_sizes(node) and all(map(self._is_plain, node.all_input_nodes))
        if node.op == "placeholder":
            return not isinstance(value, torch.Tensor)
        return isinstance(value, (int, float))

    def _changing(self) -> set[int]:
        """The storages that are written in place or returned."""
        changing = list(self.module.graph.output_node().all_input_nodes)
        for node in self.module.graph.nodes:
            changing += node.all_input_nodes if is_higher_order(node) else written_nodes(node)
        return {storage for node in changing for storage in self._storages(node)}

    def _storages(self, node: Node) -> set[int]:
        return set(map(storage_of, tensors_of(self.values[node])))


def _root(label: str) -> str:
    """The node of a tensor or an op: those of several outputs, and of sub-graphs, have names with points."""
    return label.partition(".")[0]


def _computes(node: Node) -> bool:
    """Whether `node` is an operator that gives the same for the same arguments, and does nothing else."""
    target: Any = node.target
    own = isinstance(target, OpOverload) and target.namespace in OWN
    return own and is_repeatable(target) and not target._schema.is_mutable
