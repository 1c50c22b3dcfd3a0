"""A program whose ops run in pieces, which runs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Tensor
from memplan_engine.rewrites.chunk.check_chunk import check_chunk
from memplan_engine.rewrites.chunk.piece_names import whole_op
from memplan_engine.runtime.program import Program, correct_layouts, graph_of_module
from memplan_engine.runtime.recomputed_program import named_as
from memplan_engine.torch_capture.torch_run import is_item, kind_of, tensor_of

aten = torch.ops.aten
SIZED = {"aten.view": 1, "aten._unsafe_view": 1, "aten.reshape": 1, "aten.expand": 1}
"""Kinds that are told the sizes of what they make, with the place of that argument."""


def chunked_program(program: Program, graph: Graph) -> Program:
    """`program` with a module, a copy, whose nodes run as the ops of `graph` do: the program's own graph with
    regions in pieces, as `chunk_graph` gives it, in whatever order. It takes and returns what `program` does,
    but for the last digits, and shares its weights. Its graph is taken anew from what runs, and checked
    against the program's own.

    Raises
    ------
    InputError: another graph; ops that do not make what they are planned to; a block that only sets a mode.
    """
    module = _Pieces(program, graph).module()
    values = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    _Values(module).run(*values)
    derived = named_as(program.graph, graph_of_module(module, values, len(program.state), program.name))
    known = {op.name: op for op in graph.ops}
    if known.keys() != {op.name for op in derived.ops}:
        raise InputError(program.name, "ops in pieces", "other ops than were asked for", "a plan of it")
    correct_layouts(module, derived)
    derived = replace(derived, ops=tuple(_told(op, known[op.name]) for op in derived.ops))
    if wrong := check_chunk(program.graph, derived):
        raise InputError(program.name, "ops in pieces", wrong[0], "pieces of what the whole does")
    return replace(program, module=module, graph=derived)


def _told(op: Op, own: Op) -> Op:
    """`op` with what a capture does not see of it: what it is for, and numbers that are no dimensions."""
    arguments = own.arguments if own.kind in ("aten.full", "aten.ne") else op.arguments
    return replace(op, phase=own.phase, module=own.module, source=own.source, arguments=arguments)


class _Values(Interpreter):
    """Gives nodes that have none yet the value that fake tensors make of them."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.extra_traceback = False

    def run_node(self, node: Node) -> Any:
        """What `node` makes."""
        with torch.no_grad():
            value = super().run_node(node)
        node.meta.setdefault("val", value)
        return value


class _Pieces:
    """`made` has the node that stands for each tensor of `graph`."""

    def __init__(self, program: Program, graph: Graph) -> None:
        self.program, self.graph = program, graph
        self.own = {op.name: op for op in program.graph.ops}
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.nodes = {node.name: node for node in program.module.graph.nodes}
        self.copy = FxGraph()
        self.made: dict[str, Node] = {}
        self.others: dict[Node, Node] = {}
        self.given: dict[Node, str] = {}
        """The weights and inputs, by the names that the graph has for them."""

    def module(self) -> GraphModule:
        whole = self.program.module
        given = iter((*self.program.graph.constants, *self.program.graph.inputs))
        for node in whole.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.others[node] = self.copy.node_copy(node)
                if isinstance(node.meta.get("val"), torch.Tensor) and node.op == "placeholder":
                    self.given[node] = next(given)
                    self.made[self.given[node]] = self.others[node]
        for op in self.graph.ops:
            self._run(op)
        output = whole.graph.output_node()
        names = dict(zip(self.program.graph.outputs, self.graph.outputs, strict=True))
        copied = self.copy.output(map_arg(output.args[0], lambda node: self._now(node, names)))
        copied.meta = {**output.meta}
        self.copy.set_codegen(whole.graph._codegen)
        self.copy.lint()
        return GraphModule(whole, self.copy)

    def _run(self, op: Op) -> None:
        found = whole_op(op.name, self.own)
        twin = None if found is None else self.own[found]
        if twin is not None and op.kind == twin.kind:
            new = self._like(op, twin)
        elif op.kind in HELPERS:
            tensor = self.tensors[op.outputs[0]]
            target, args, kwargs = HELPERS[op.kind](op, tensor, [self.made[name] for name in op.inputs])
            new = self.copy.create_node("call_function", target, args, kwargs, op.name)
            new.meta = {} if twin is None else self._lines(twin)
        else:
            raise InputError(self.program.name, op.name, op.kind, "a plan of the same model")
        for name in op.outputs:
            if name == op.name:
                self.made[name] = new
            else:
                self.made[name] = self._item(new, int(name.rpartition(".")[2]), op, twin)

    def _lines(self, twin: Op) -> dict[str, Any]:
        """Where the user's code is that `twin` comes from."""
        meta = self._node(twin).meta
        return {key: value for key, value in meta.items() if key in ("stack_trace", "nn_module_stack")}

    def _item(self, new: Node, place: int, op: Op, twin: Op | None) -> Node:
        item = self.copy.call_function(operator.getitem, (new, place))
        if twin is not None and op.name == twin.name:
            value = self._node(twin).meta.get("val")
            if isinstance(value, (tuple, list)):
                item.meta["val"] = value[place]
        return item

    def _node(self, twin: Op) -> Node:
        found: Node | None = self.nodes.get(twin.name)
        if found is None:
            place = "a part of a block that only sets a mode"
            raise InputError(self.program.name, twin.name, place, "ops outside of such blocks")
        return found

    def _like(self, op: Op, twin: Op) -> Node:
        """The node of `twin` that reads what `op` does, on a piece or on the whole."""
        node = self._node(twin)
        if len(op.inputs) < len(twin.inputs):
            raise InputError(self.program.name, op.name, "other inputs", "a plan of the same model")
        reads = dict(zip(twin.inputs, op.inputs, strict=False))
        args, kwargs = map_arg((node.args, node.kwargs), lambda argument: self._now(argument, reads))
        if op.name != twin.name:
            args = self._resized(op, node, args)
        new = self.copy.create_node(node.op, node.target, args, kwargs, op.name, node.type)
        new.meta = {**node.meta} if op.name == twin.name else self._lines(twin)
        return new

    def _resized(self, op: Op, node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a piece that are not those of the whole: sizes, and how a loss is reduced."""
        place = SIZED.get(kind_of(node))
        if place is not None:
            return (*args[:place], list(self.tensors[op.outputs[0]].shape), *args[place + 1 :])
        if kind_of(node) == "aten.nll_loss_forward":
            return (*args[:3], dict(op.arguments)["reduction"][0], *args[4:])
        return args

    def _now(self, argument: Node, reads: dict[str, str]) -> Node:
        """What stands for `argument`, which may have another name in `reads`."""
        name = self.given.get(argument) or tensor_of(argument)
        asked = reads.get(name, name)
        if asked in self.made:
            return self.made[asked]
        if argument in self.others:
            return self.others[argument]
        if argument.name in self.own or is_item(argument):
            found = f"{asked}, which is read before it is made"
            raise InputError(self.program.name, argument.name, found, "a plan of the same model")
        other: Node = self.copy.node_copy(argument, lambda each: self._now(each, {}))
        self.others[argument] = other
        return other


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _dtype(tensor: Tensor) -> torch.dtype:
    found: torch.dtype = getattr(torch, tensor.dtype)
    return found


def _filled(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    value = dict(op.arguments)["fill"][0]
    return aten.full.default, (list(tensor.shape), value), {"dtype": _dtype(tensor)}


def _zeros(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    return aten.zeros.default, (list(tensor.shape),), {"dtype": _dtype(tensor)}


def _empty(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    if tensor.strides is None:
        return aten.empty.memory_format, (list(tensor.shape),), {"dtype": _dtype(tensor)}
    sizes = (list(tensor.shape), list(tensor.strides))
    return aten.empty_strided.default, sizes, {"dtype": _dtype(tensor)}


def _slice(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    told = dict(op.arguments)
    return aten.slice.Tensor, (reads[0], told["dim"][0], told["start"][0], told["end"][0]), {}


def _kept(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    return aten.ne.Scalar, (reads[0], dict(op.arguments)["other"][0]), {}


def _counted(op: Op, tensor: Tensor, reads: list[Node]) -> Call:
    return aten.sum.default, (reads[0],), {"dtype": _dtype(tensor)}


def _plain(target: Any) -> Callable[[Op, Tensor, list[Node]], Call]:
    return lambda op, tensor, reads: (target, tuple(reads), {})


HELPERS: dict[str, Callable[[Op, Tensor, list[Node]], Call]] = {
    "aten.full": _filled,
    "aten.zeros": _zeros,
    "aten.empty": _empty,
    "aten.empty_strided": _empty,
    "aten.slice": _slice,
    "aten.ne": _kept,
    "aten.sum": _counted,
    "aten.copy_": _plain(aten.copy_.default),
    "aten.add_": _plain(aten.add_.Tensor),
    "aten.div": _plain(aten.div.Tensor),
    "aten.addmm_": _plain(aten.addmm_.default),
    "aten.baddbmm_": _plain(aten.baddbmm_.default),
}
"""What makes the node of an op that is there for pieces, by kind."""
