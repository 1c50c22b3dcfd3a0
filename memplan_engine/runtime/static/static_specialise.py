"""A captured graph with every size a plain number and its constants worked out: what runs over and over."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from memplan_engine.graph import Graph as MemplanGraph
from memplan_engine.torch_capture.torch_fake import quiet, storage_of, tensors_of
from memplan_engine.torch_capture.torch_graph import assemble
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


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """`module` for inputs of certain sizes; its placeholders are the weights, `constants` and the inputs.
    `graph` is the same as memplan sees it."""

    module: GraphModule
    constants: list[torch.Tensor]
    graph: MemplanGraph


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
        given = [
            self.run.take(node.name, value, place < state)
            for place, (node, value) in enumerate(zip(self.placeholders, inputs, strict=True))
        ]
        self.run.run(module, given, self.slots)
        self.values = {node: slot.value for node, slot in self.slots.items()}

    def constants(self) -> dict[Node, torch.Tensor]:
        """The results of operators that depend on nothing else, of those that others read."""
        kept = self._changing()
        real: dict[Node, torch.Tensor] = {}
        for node in self.module.graph.nodes:
            computed = _computes(node) and isinstance(self.values[node], torch.Tensor)
            if not computed or not kept.isdisjoint(self._storages(node)):
                continue
            if all(source in real or self._is_plain(source) for source in node.all_input_nodes):
                known = {**self.values, **real}
                args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
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
        graph, env = Graph(), {}
        for node in (*self.placeholders[: self.state], *constants, *self.placeholders[self.state :]):
            env[node] = self._noted(graph.placeholder(node.name), node)
        for node in self.module.graph.nodes:
            if node.op == "output":
                graph.output(map_arg(node.args[0], lambda used: self._read(used, env)))
            elif node in needed and node not in env and not self._is_number(node):
                env[node] = self._noted(graph.node_copy(node, lambda used: self._read(used, env)), node)
        graph.lint()
        made = GraphModule(self.module, graph)
        made.meta.update(self.module.meta)
        return made

    def describe(self, constants: Collection[Node], needed: set[Node]) -> MemplanGraph:
        """The new graph as memplan sees it."""
        run, kept = self.run, {node.name for node in (*self.placeholders, *constants, *needed)}
        run.ops = [op for op in run.ops if _root(op.name) in kept - {node.name for node in constants}]
        run.tensors = {label: tensor for label, tensor in run.tensors.items() if _root(label) in kept}
        run.storages = {label: run.storages[label] for label in run.tensors}
        results = [label for node in constants for label in labels(self.slots[node].names)]
        run.constants = [label for label in (*run.constants, *results) if _root(label) in kept]
        return assemble(run, look_up(self.module.graph.output_node().args[0], self.slots))

    def _read(self, node: Node, env: Mapping[Node, Node]) -> Any:
        """The new node, or the plain value that `node` has."""
        return self.values[node] if self._is_number(node) else env[node]

    def _is_number(self, node: Node) -> bool:
        return node.op == "call_function" and self._is_plain(node)

    def _noted(self, made: Node, node: Node) -> Node:
        # In the shape and strides of that moment: an op may change them in place later on.
        slot, tensors = self.slots[node], self.run.tensors
        value = pytree.tree_map(lambda leaf, name: tensors.get(name, leaf), slot.value, slot.names)
        made.meta = {**node.meta, "val": value}
        return made

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
