"""A program some of whose results wait on the host, which runs."""

from __future__ import annotations

import operator
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch.fx import Node

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op
from memplan_engine.op_kinds.copies import ON_HOST, TO_HOST, is_copy
from memplan_engine.rewrites.offload.check_offload import wrong_copies
from memplan_engine.rewrites.offload.offloaded_graph import copied_like, without_copies
from memplan_engine.runtime.host_copies import Layout, on_host, to_device, to_host
from memplan_engine.runtime.program import Program
from memplan_engine.runtime.recomputed_program import NodeCopies


def offloaded_program(program: Program, graph: Graph) -> Program:
    """`program`, which runs in the order of `graph`, with a module, a copy, that copies to the host and back
    what `graph` does. It takes and returns what `program` does, and shares its weights.

    Raises
    ------
    InputError: another graph; one that copies what has been written over by then.
    """
    if [op.name for op in program.graph.ops] != [op.name for op in graph.ops if not is_copy(op.kind)]:
        raise InputError(program.name, "copies", "other ops than those of the program", "a plan of it")
    own = copied_like(program.graph, graph)
    if wrong := wrong_copies(program.graph, own):
        raise InputError(program.name, "copies", wrong[0], "copies of what is there")
    return replace(program, module=_WithCopies(program, own).module(), graph=own)


class _WithCopies(NodeCopies):
    """Nodes for the copies of `graph`, beside those of its other ops."""

    def __init__(self, program: Program, graph: Graph) -> None:
        super().__init__(program, graph)
        self.tensors = {tensor.name: tensor for tensor in graph.tensors}
        self.sizes = {storage.name: storage.nbytes for storage in graph.storages}
        self.values: dict[str, Any] = {}
        for node in program.module.graph.nodes:
            value = node.meta.get("val")
            parts = enumerate(value) if isinstance(value, (tuple, list)) else ()
            self.values |= {node.name: value, **{f"{node.name}.{place}": part for place, part in parts}}
        whole = [op for op in graph.ops if not is_copy(op.kind)]
        self.copied: dict[str, str] = {}
        """By tensor that came back the one of the program that it stands for."""
        for op, twin in zip(whole, without_copies(graph).ops, strict=True):
            self.copied |= dict(zip((*op.inputs, *op.mutates), (*twin.inputs, *twin.mutates), strict=True))

    def run_op(self, op: Op) -> None:
        """A copy, or what it is in the program."""
        if not is_copy(op.kind):
            super().run_op(op)
            return
        read: list[Any] = [self.made[name] for name in op.inputs]
        if op.kind == TO_HOST:
            tensor = self.tensors[op.inputs[0]]
            read += [tensor.offset, self.sizes[tensor.storage]]
        if op.kind in (TO_HOST, ON_HOST):
            function = to_host if op.kind == TO_HOST else on_host
            self.made[op.outputs[0]] = self._call(op.name, function, tuple(read), ())
            return
        layouts = tuple(self._layout(name) for name in op.outputs)
        values = tuple(self.values.get(self.copied.get(name, name)) for name in op.outputs)
        several = self._call(op.name, to_device, (*read, layouts), values)
        for place, (name, value) in enumerate(zip(op.outputs, values, strict=True)):
            self.made[name] = self._call(
                name.replace(".", "_part_"), operator.getitem, (several, place), value
            )

    def _call(self, name: str, function: Any, args: tuple[Any, ...], value: Any) -> Node:
        node = self.copy.create_node("call_function", function, args, {}, name)
        if value is not None:
            node.meta = {"val": value}
        return node

    def _layout(self, name: str) -> Layout:
        tensor = self.tensors[name]
        strides = tensor.strides
        if strides is None:
            strides = tuple(prod(tensor.shape[place + 1 :]) for place in range(len(tensor.shape)))
        return Layout(tensor.shape, strides, tensor.offset, getattr(torch, tensor.dtype))
