"""A joint graph of AOTAutograd cut in two, as a schedule of its ops says."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._functorch import partitioners
from torch.fx import GraphModule, Node

from memplan_engine.errors import InputError
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.runtime.compiling.compile_options import CompileOptions
from memplan_engine.runtime.compiling.joint_schedule import Joint, schedule_joint, with_boundary
from memplan_engine.runtime.compiling.op_schedule import OpSchedule
from memplan_engine.runtime.compiling.random_ops import drawing_nodes
from memplan_engine.runtime.program import Program, program_from_module
from memplan_engine.runtime.recomputed_program import recomputed_program
from memplan_engine.torch_capture.torch_run import is_higher_order, kind_of, tensor_of
from memplan_engine.torch_capture.training.torch_joint import Halves as JointHalves
from memplan_engine.torch_capture.training.torch_joint import is_tangent, joint_graph, outputs_of

TRACED_OTHERWISE = {"aten.prod", "aten.cumprod"}
"""Whose gradients autograd works out by another formula when it cannot look at values."""
SIDE = "partitioner_tag"
FORWARD, BACKWARD = "must_be_in_forward", "must_be_in_backward"
"""How torch's partitioners are told on which side of the cut a node belongs."""


def joint_program(module: GraphModule, outputs: int, name: str) -> tuple[Program, Joint]:
    """The program of a joint graph, of whose flat outputs the first `outputs` are those of the forward pass,
    and what there is to be scheduled.

    Raises
    ------
    InputError: a node that calls sub-graphs, one that writes in place, one whose gradient is traced in
        another way, sizes that are not known; as `program_from_module`.
    """
    check_plain(module, name)
    for node in module.graph.nodes:
        if node.op == "call_function" and kind_of(node) in TRACED_OTHERWISE:
            found = f"{kind_of(node)}, whose gradient has other last digits when it is traced"
            raise InputError(name, node.name, found, "operators with one formula for their gradients")
    placeholders = module.graph.find_nodes(op="placeholder")
    program = program_from_module(module, [node.meta["val"] for node in placeholders], name=name)
    returned = outputs_of(module)[:outputs]
    described = module.graph.output_node().meta.get("desc") or [None] * outputs
    changed = {getattr(desc, "mutated_input", None) for desc in described[:outputs]} - {None}
    joint = Joint(
        program.graph,
        tuple(tensor_of(node) for node in returned if _is_tensor(node)),
        tuple(node.name for node in placeholders if is_tangent(node)),
        tuple(node.name for node in placeholders if node.meta.get("desc") in changed and _is_tensor(node)),
        drawing_nodes(module),
    )
    return program, joint


def cut(
    module: GraphModule, outputs: int, options: CompileOptions, name: str
) -> tuple[GraphModule, GraphModule, OpSchedule]:
    """The forward and the backward graph of a joint one, and the schedule that they follow.

    Raises
    ------
    InputError: as `joint_program` and `schedule_joint`; MemplanError: a schedule that its checker refuses.
    """
    program, joint = joint_program(module, outputs, name)
    found = schedule_joint(joint, options)
    whole = recomputed_program(program, found.schedule.graph).module
    _tell_sides(whole, found.forward)
    forward, backward = partitioners._extract_fwd_bwd_modules(
        whole, _saved(whole, outputs), saved_sym_nodes=[], num_fwd_outputs=outputs
    )
    return forward, backward, found.schedule


def peak_of_halves(forward: GraphModule, backward: GraphModule, outputs: int, name: str) -> int:
    """Live bytes at the worst step of both, one behind the other, as they are. What the caller gives for the
    results counts from the end of the forward pass on."""
    graph = joint_graph(JointHalves(name, forward, backward, outputs))
    tangents = [node.name for node in backward.graph.find_nodes(op="placeholder") if is_tangent(node)]
    results = [tensor_of(node) for node in outputs_of(forward)[:outputs] if _is_tensor(node)]
    return peak_in_order(with_boundary(Joint(graph, tuple(results), tuple(tangents))))


def saved_bytes_of(forward: GraphModule, outputs: int) -> int:
    """Bytes of the storages that `forward` makes and saves for the backward pass."""
    nodes = outputs_of(forward)
    storages = {
        node.meta["val"].untyped_storage()._cdata: node.meta["val"].untyped_storage().nbytes()
        for node in nodes[outputs:]
        if _is_tensor(node) and node.op != "placeholder"
    }
    given = [node.meta["val"] for node in forward.graph.find_nodes(op="placeholder") if _is_tensor(node)]
    for value in given:
        storages.pop(value.untyped_storage()._cdata, None)
    return sum(storages.values())


def check_plain(module: GraphModule, name: str) -> None:
    """Raise InputError for what no schedule of the joint graph may move or run again."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        kind = kind_of(node)
        if is_higher_order(node):
            raise InputError(name, node.name, f"{kind}, which calls graphs of its own", "plain operators")
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise InputError(name, node.name, f"{kind}, which writes in place", "operators that make results")
        if "c10d" in kind:
            found = f"{kind}, for which other ranks wait"
            raise InputError(name, node.name, found, "a graph of one rank alone")


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _tell_sides(module: GraphModule, forward: frozenset[str]) -> None:
    """Say of each node on which side it belongs; what reads one output of several goes with its maker."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            maker = node
            while maker.target is operator.getitem:
                maker = maker.args[0]
            node.meta[SIDE] = FORWARD if maker.name in forward else BACKWARD
        elif node.op == "get_attr":
            node.meta.pop(SIDE, None)


def _saved(module: GraphModule, outputs: int) -> list[Node]:
    """What the backward pass reads or returns and does not make itself, in the order in which it is made."""
    returned = {node for node in outputs_of(module)[outputs:] if isinstance(node, Node)}

    def is_before(node: Node) -> bool:
        return node.meta.get(SIDE) == FORWARD or (node.op == "placeholder" and not is_tangent(node))

    def crosses(node: Node) -> bool:
        return node in returned or any(user.meta.get(SIDE) == BACKWARD for user in node.users)

    return [node for node in module.graph.nodes if is_before(node) and crosses(node)]
