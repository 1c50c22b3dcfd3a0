"""A program some of whose ops run again, which runs."""

from __future__ import annotations

import operator
from dataclasses import replace

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op
from memplan_engine.op_kinds.generators import GENERATOR_BYTES, is_of_generator
from memplan_engine.op_kinds.ordered import drawing_ops
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.recomputed_graph import first_run
from memplan_engine.runtime.generator_state import check_repeatable, generator_operators
from memplan_engine.runtime.program import Program, graph_of_module
from memplan_engine.torch_capture.torch_run import tensor_of


def recomputed_program(program: Program, graph: Graph) -> Program:
    """`program` with a module, a copy, whose nodes run as the ops of `graph` do: the program's own graph in
    which some run again, as `recompute` gives it. It takes and returns what `program` does, and shares its
    weights. Its graph is taken anew from what runs, and checked against the program's own.

    Raises
    ------
    InputError: another graph; one in which an op would read or write something else than before, or draw
        other random numbers; one that runs a part of a block again that only sets a mode, or draws again what
        cannot be repeated.
    """
    module = NodeCopies(program, graph).module()
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    derived = named_as(program.graph, graph_of_module(module, values, len(program.state), program.name))
    known = {op.name: op for op in graph.ops}
    if known.keys() != {op.name for op in derived.ops}:
        raise InputError(program.name, "ops that run again", "other ops than were asked for", "a plan of it")
    ops = tuple(
        replace(op, phase=own.phase, module=own.module, source=own.source)
        for op in derived.ops
        for own in (known[op.name],)
    )
    derived = replace(derived, ops=ops)
    if wrong := check_recompute(program.graph, derived):
        raise InputError(program.name, "ops that run again", wrong[0], "ops that read what they did before")
    return replace(program, module=module, graph=derived)


def named_as(own: Graph, derived: Graph) -> Graph:
    """`derived` with the names that `own` has for the same weights and inputs."""
    given = zip((*derived.constants, *derived.inputs), (*own.constants, *own.inputs), strict=True)
    names = dict(given)

    def named(all_: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in all_)

    tensors = [replace(each, name=names.get(each.name, each.name)) for each in derived.tensors]
    return replace(
        derived,
        storages=tuple(replace(each, name=names.get(each.name, each.name)) for each in derived.storages),
        tensors=tuple(replace(each, storage=names.get(each.storage, each.storage)) for each in tensors),
        ops=tuple(
            replace(op, inputs=named(op.inputs), mutates=named(op.mutates), outputs=named(op.outputs))
            for op in derived.ops
        ),
        inputs=own.inputs,
        constants=own.constants,
        outputs=named(derived.outputs),
    )


class NodeCopies:
    """Copies of the nodes of `program`, as the ops of `graph` run them. `made` has the node that stands for
    each tensor of `graph`, `latest` the last copy of each node."""

    def __init__(self, program: Program, graph: Graph) -> None:
        self.program, self.graph = program, graph
        self.own = {op.name: op for op in program.graph.ops}
        self.drawing = drawing_ops(program.graph)
        self.nodes = {node.name: node for node in program.module.graph.nodes}
        self.copy = FxGraph()
        self.made: dict[str, Node] = {}
        self.latest: dict[Node, Node] = {}

    def module(self) -> GraphModule:
        """A module with them, in their order."""
        whole = self.program.module
        for node in whole.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._keep(node, {})
        self._follow()
        for op in self.graph.ops:
            self.run_op(op)
        output = whole.graph.output_node()
        self._keep(output, dict(zip(self.program.graph.outputs, self.graph.outputs, strict=True)))
        self.copy.set_codegen(whole.graph._codegen)
        self.copy.lint()
        return GraphModule(whole, self.copy)

    def run_op(self, op: Op) -> None:
        """The nodes of `op`."""
        if is_of_generator(op.kind) and op.name not in self.own:
            self._on_generator(op)
        else:
            self._run(op, self._twin(op))

    def _on_generator(self, op: Op) -> None:
        """A state of the generator is kept or put back."""
        if missing := [name for name in op.inputs if name not in self.made]:
            found = f"{missing[0]}, which is read before it is made"
            raise InputError(self.program.name, op.name, found, "a plan of the same model")
        target, read = generator_operators()[op.kind], tuple(self.made[name] for name in op.inputs)
        node = self.copy.create_node("call_function", target, read, {}, op.name)
        node.meta = {"val": torch.empty(GENERATOR_BYTES, dtype=torch.uint8)}
        if op.outputs:
            self.made[op.outputs[0]] = node

    def _twin(self, op: Op) -> Op:
        """The op of the program that `op` is a run of."""
        twin = self.own.get(first_run(op.name, self.own))
        if twin is None or len(twin.inputs) != len(op.inputs):
            raise InputError(self.program.name, op.name, "no op of the program", "a plan of the same model")
        if twin.name not in self.nodes:
            found = "a part of a block that only sets a mode"
            raise InputError(self.program.name, op.name, found, "blocks that run once")
        return twin

    def _run(self, op: Op, twin: Op) -> None:
        node = self.nodes[twin.name]
        if op.name != twin.name and twin.name in self.drawing:
            check_repeatable(self.program.name, node)
        # One that writes over what it reads in `graph` alone names that there.
        reads = dict(
            zip((*twin.mutates, *twin.inputs), (*op.mutates[: len(twin.mutates)], *op.inputs), strict=True)
        )
        new = self._keep(node, reads, op.name)
        names = dict(zip(twin.outputs, op.outputs, strict=True))
        if tensor_of(node) in names:
            self.made[names[tensor_of(node)]] = new
        for user in list(node.users):
            if user.target is operator.getitem and user.op == "call_function":
                part = self._keep(user, {}, f"{user.name}{op.name.removeprefix(twin.name)}")
                if tensor_of(user) in names:
                    self.made[names[tensor_of(user)]] = part
        self._follow()

    def _keep(self, node: Node, reads: dict[str, str], name: str = "") -> Node:
        """A copy of `node`, which reads what `reads` has for each tensor; anything else as it is now."""

        def now(argument: Node) -> Node:
            asked = reads.get(tensor_of(argument))
            if asked is None or argument.op != "call_function":
                return self.latest[argument]
            if asked not in self.made:
                found = f"{asked}, which is read before it is made"
                raise InputError(self.program.name, name or "the outputs", found, "a plan of the same model")
            return self.made[asked]

        args, kwargs = map_arg((node.args, node.kwargs), now)
        new = self.copy.create_node(node.op, node.target, args, kwargs, name or node.name, node.type)
        new.meta = {**node.meta}
        self.latest[node] = new
        return new

    def _follow(self) -> None:
        """What is no op, such as arithmetic on sizes, as soon as what it reads is there."""
        for node in self._others:
            if node not in self.latest and all(each in self.latest for each in node.all_input_nodes):
                self._keep(node, {})

    @property
    def _others(self) -> list[Node]:
        return [
            node
            for node in self.program.module.graph.nodes
            if node.op == "call_function"
            and node.name not in self.own
            and node.target is not operator.getitem
        ]
