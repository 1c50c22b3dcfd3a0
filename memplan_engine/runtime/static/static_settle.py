"""A captured graph with every size a plain number and its constants worked out: what runs over and over."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph as MemplanGraph
from memplan_engine.runtime.node_run import attribute_of
from memplan_engine.torch_capture.torch_fake import FakeTwins, as_exported, fake_mode, quiet
from memplan_engine.torch_capture.torch_graph import assemble
from memplan_engine.torch_capture.torch_run import (
    Run,
    Slot,
    changes_layout,
    is_arithmetic_on_sizes,
    is_higher_order,
    labels,
    look_up,
    written,
)
from memplan_engine.torch_capture.torch_symbols import Sizes

OWN = ("aten", "prims")
"""Namespaces of torch's own operators, which do what their schemas say."""
EMPTY = "empty"
"""Operators with this in their names give memory whose values nobody knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """`module` for inputs of certain sizes; its placeholders are the weights, `constants` and the inputs.
    `graph` is the same as memplan sees it."""

    module: GraphModule
    constants: list[torch.Tensor]
    graph: MemplanGraph


def settle(module: GraphModule, inputs: Sequence[Any], state: int, name: str) -> Settled:
    """`module` for inputs of the sizes of `inputs`, one for each placeholder, the first `state` of them
    weights. Asking for sizes and reckoning with them is done; so are operators that depend on nothing but
    numbers (masks, positions), whose results are placeholders behind the weights. What is random, mutated or
    returned is left as it is.

    Raises
    ------
    InputError: sizes that the graph's own checks refuse, an operator that fake tensors cannot run.
    """
    run = _Settling(module, state, name)
    with torch.no_grad(), quiet():
        run.look(inputs)
        constants = run.constants()
        needed = run.needed(constants)
        return Settled(
            run.build(constants, needed), list(constants.values()), run.describe(constants, needed)
        )


class _Looking(Run):
    """A re-run of single nodes."""

    def call(self, node: Node, env: dict[Node, Slot]) -> Slot:
        """What `node` gives for what is in `env`."""
        return as_exported(lambda: self._call(node, env, ""))


class _Settling:
    """`values` are the fake values of nodes (plain ones for sizes); `noted` are the same as they were when
    they were made, for graphs in which shapes or strides change in place."""

    def __init__(self, module: GraphModule, state: int, name: str) -> None:
        self.module, self.state, self.name = module, state, name
        self.mode = fake_mode()
        self.run = _Looking(name, self.mode)
        self.slots: dict[Node, Slot] = {}
        self.values: dict[Node, Any] = {}
        self.noted: dict[Node, Any] = {}
        self.changes = any(changes_layout(node) for node in module.graph.nodes)

    def look(self, inputs: Sequence[Any]) -> None:
        """Run the graph on fake twins of `inputs`."""
        twins, pending = FakeTwins(self.mode), iter(inputs)
        for node in self.module.graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                value = next(pending)
                value = twins.twin(value) if isinstance(value, torch.Tensor) else value
                self.slots[node] = self.run.keep(node.name, value)
            elif node.op == "get_attr":
                value = attribute_of(self.module, node)
                if isinstance(value, torch.Tensor):
                    value = self.mode.from_tensor(value, static_shapes=True)
                self.slots[node] = self.run.keep(node.name, value)
            elif node.op == "call_function":
                self.slots[node] = self.run.call(node, self.slots)
            else:
                raise InputError(self.name, f"node {node.name}", node.op, "a flat graph of operators")
            self.values[node] = self.slots[node].value
            if self.changes:
                with self.mode:
                    self.noted[node] = pytree.tree_map_only(
                        torch.Tensor, lambda tensor: tensor.detach(), self.values[node]
                    )

    def constants(self) -> dict[Node, torch.Tensor]:
        """The results of operators that depend on nothing else, of those that others read."""
        kept = self._changing()
        real: dict[Node, torch.Tensor] = {}
        for node in self.module.graph.nodes:
            if not _computes(node) or not self._is_lone(node, kept):
                continue
            if all(source in real or self._is_plain(source) for source in node.all_input_nodes):
                args, kwargs = self._arguments(node, {**self.values, **real})
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
        placeholders = self.module.graph.find_nodes(op="placeholder")
        for node in (*placeholders[: self.state], *constants, *placeholders[self.state :]):
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
        run, placeholders = self.run, self.module.graph.find_nodes(op="placeholder")
        kept = {node.name for node in (*placeholders, *constants, *needed)}
        run.ops = [op for op in run.ops if _root(op.name) in kept - {node.name for node in constants}]
        run.tensors = {label: tensor for label, tensor in run.tensors.items() if _root(label) in kept}
        run.storages = {label: run.storages[label] for label in run.tensors}
        attributes = [node for node in needed if node.op == "get_attr"]
        inner = [label for label in run.constants if _root(label) in kept]
        run.constants = [
            label
            for node in (*placeholders[: self.state], *constants, *attributes)
            for label in labels(self.slots[node].names)
        ] + inner
        given = [label for node in placeholders[self.state :] for label in labels(self.slots[node].names)]
        returned = labels(look_up(self.module.graph.output_node().args[0], self.slots).names)
        return assemble(run, Sizes(self.name, {}), given, list(dict.fromkeys(returned)))

    def _read(self, node: Node, env: Mapping[Node, Node]) -> Any:
        """The new node, or the plain value that `node` has."""
        return self.values[node] if self._is_number(node) else env[node]

    def _is_number(self, node: Node) -> bool:
        return node.op == "call_function" and self._is_plain(node)

    def _noted(self, made: Node, node: Node) -> Node:
        made.meta = {**node.meta, "val": self.noted.get(node, self.values[node])}
        return made

    def _arguments(self, node: Node, values: Mapping[Node, Any]) -> tuple[Any, Any]:
        args, kwargs = map_arg((node.args, node.kwargs), lambda used: values[used])
        return args, kwargs

    def _is_plain(self, node: Node) -> bool:
        """Whether the value of `node` is known before the run: a number, or a check of numbers."""
        value = self.values[node] if node.op in ("call_function", "placeholder") else node
        if node.op == "call_function" and value is None:
            return is_arithmetic_on_sizes(node) and all(map(self._is_plain, node.all_input_nodes))
        if node.op == "placeholder":
            return not isinstance(value, torch.Tensor)
        return isinstance(value, (int, float))

    def _is_lone(self, node: Node, kept: set[int]) -> bool:
        value = self.values[node]
        return isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in kept

    def _changing(self) -> set[int]:
        """The storages that are written in place or returned."""
        kept = {id_ for node in self.module.graph.output_node().all_input_nodes for id_ in self._ids(node)}
        for node in self.module.graph.nodes:
            if node.op != "call_function":
                continue
            labels = map_arg((node.args, node.kwargs), lambda used: used.name)
            names = {used.name: used for used in node.all_input_nodes}
            for label in written(node, *labels):
                kept.update(self._ids(names[label]) if label in names else ())
            if is_higher_order(node):
                kept.update(id_ for used in node.all_input_nodes for id_ in self._ids(used))
        return kept

    def _ids(self, node: Node) -> Iterator[int]:
        for leaf in pytree.tree_leaves(self.values[node]):
            if isinstance(leaf, torch.Tensor):
                yield leaf.untyped_storage()._cdata


def _root(label: str) -> str:
    """The node of a tensor or an op: those of several outputs, and of sub-graphs, have names with points."""
    return label.partition(".")[0]


def _computes(node: Node) -> bool:
    """Whether `node` is an operator that gives the same for the same arguments, and does nothing else."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace not in OWN:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return not target._schema.is_mutable and EMPTY not in target._schema.name
