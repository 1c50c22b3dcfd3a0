"""Which storages go into the slab, and how each of them gets there."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import Op, Role, Tensor, span
from memplan_engine.runtime.binding import Binding
from memplan_engine.runtime.out_equivalents import Equivalent, find_equivalent
from memplan_engine.runtime.out_native import (
    COMPOSITES,
    FOLDS,
    UNTRUSTED,
    folds_otherwise,
    generated_out,
    native_out,
    qualified_name,
)
from memplan_engine.runtime.out_site import Asked
from memplan_engine.runtime.slab_report import Made, Way

POLICIES = ("native", "all")
RESIZING = ("aten.resize_", "aten.resize_as_", "aten.set_")
"""Operators that give a tensor another storage, or its storage another size."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one node writes: `results` are its results that lie in the slab, by their place among all of them,
    as tensor names; `write` is the overload or the equivalent that puts them there, None for a copy."""

    way: Way
    results: Mapping[int, str]
    write: OpOverload | Equivalent | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """By node name, and for every storage made, in order, how and why."""

    by_node: Mapping[str, Choice]
    made: tuple[Made, ...]
    device: torch.device


def choose(module: GraphModule, binding: Binding, policy: str) -> Choices:
    """How every node of `module` writes.

    Raises
    ------
    InputError: a policy other than "native" and "all".
    """
    if policy not in POLICIES:
        raise InputError(binding.graph.name, "policy", repr(policy), f"one of {', '.join(POLICIES)}")
    nodes = {node.name: node for node in module.graph.nodes if node.op == "call_function"}
    device = slab_device(nodes, binding)
    by_node: dict[str, Choice] = {}
    made: list[Made] = []
    seen: set[str] = set()
    resized = _resized(binding)
    for op in binding.graph.ops:
        fresh = _fresh(op, binding, seen)
        if not fresh:
            continue
        node = nodes.get(op.name)
        reasons = {
            tensor.name: "resized later on"
            if tensor.storage in resized
            else _obstacle(tensor, node, binding, policy, device)
            for tensor in fresh
        }
        wanted = {tensor.name for tensor in fresh if not reasons[tensor.name]}
        way, reason = Way.LEFT, ""
        if wanted and node is not None:
            choice, reason = _choose_way(node, op, wanted, binding, policy)
            way = choice.way
            if way is not Way.LEFT:
                by_node[op.name] = choice
        for tensor in fresh:
            own = (way, reason) if tensor.name in wanted else (Way.LEFT, reasons[tensor.name])
            nbytes = binding.storages[tensor.storage].nbytes
            made.append(Made(tensor.storage, nbytes, op.name, op.kind, *own))
    return Choices(by_node, tuple(made), device)


def _resized(binding: Binding) -> set[str]:
    """The storages that do not stay as they are."""
    resizing = [op for op in binding.graph.ops if op.kind in RESIZING]
    return {binding.tensors[name].storage for op in resizing for name in (*op.inputs, *op.mutates)}


def _fresh(op: Op, binding: Binding, seen: set[str]) -> list[Tensor]:
    """The outputs of `op` that begin a storage with bytes in it."""
    found = []
    for name in op.outputs:
        tensor = binding.tensors[name]
        storage = binding.storages[tensor.storage]
        if storage.name in seen or storage.role not in (Role.ACTIVATION, Role.OUTPUT):
            continue
        seen.add(storage.name)
        if storage.nbytes:
            found.append(tensor)
    return found


def _obstacle(tensor: Tensor, node: Node | None, binding: Binding, policy: str, device: torch.device) -> str:
    """Why `tensor` cannot lie in the slab; "" when it can."""
    if node is None:
        return "inside a sub-graph"
    if tensor.storage not in binding.regions:
        return "not in the plan"
    if policy == "native" and binding.storages[tensor.storage].role is Role.OUTPUT:
        return "returned by the graph"
    value = value_of(node, tensor.name)
    if value.device != device:
        return f"on another device, {value.device}"
    return ""


def _choose_way(node: Node, op: Op, wanted: set[str], binding: Binding, policy: str) -> tuple[Choice, str]:
    results = {place: name for place, name in results_of(node) if name in wanted}
    whole = all(_is_whole(binding.tensors[name], binding) for name in results.values())
    write, way, reason = _in_place(node)
    if write is not None and not whole:
        write, reason = None, "its storage is larger than its result"
    if write is not None:
        return Choice(way, results, write), ""
    if policy == "native":
        return Choice(Way.LEFT, results), reason
    generated = generated_out(node.target) if whole and _all_tensors(node) else None
    if generated is not None:
        return Choice(Way.GENERATED, results, generated), reason
    return Choice(Way.COPIED, results), reason


def _in_place(node: Node) -> tuple[OpOverload | Equivalent | None, Way, str]:
    """What writes the results of `node` in place; why nothing does."""
    if isinstance(node.target, HigherOrderOperator):
        return None, Way.LEFT, "calls sub-graphs"
    if not isinstance(node.target, OpOverload):
        return None, Way.LEFT, "a Python function"
    equivalent = find_equivalent(Asked(node))
    if equivalent is not None:
        return equivalent, Way.EQUIVALENT, ""
    overload = native_out(node.target)
    if overload is not None and qualified_name(overload) in COMPOSITES and folds_otherwise(Asked(node)):
        return None, Way.LEFT, FOLDS
    if overload is not None and _all_tensors(node):
        return overload, Way.NATIVE, ""
    if node.target._schema.name in UNTRUSTED:
        return None, Way.LEFT, UNTRUSTED[node.target._schema.name]
    if generated_out(node.target) is not None:
        return None, Way.LEFT, "its out overload only copies"
    return None, Way.LEFT, "no out overload with its arguments"


def _all_tensors(node: Node) -> bool:
    return all(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(node.meta["val"]))


def _is_whole(tensor: Tensor, binding: Binding) -> bool:
    """Whether `tensor` shows its storage from the first byte to the last."""
    return span(tensor) == (0, binding.storages[tensor.storage].nbytes)


def results_of(node: Node) -> Iterator[tuple[int, str]]:
    """The place and the name of each tensor among the results of `node`."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        yield 0, node.name
        return
    for place, leaf in enumerate(pytree.tree_leaves(value)):
        if isinstance(leaf, torch.Tensor):
            yield place, f"{node.name}.{place}"


def value_of(node: Node, tensor: str) -> torch.Tensor:
    """The captured (fake) tensor of that name among the results of `node`."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return value
    place = int(tensor.rpartition(".")[2])
    found: torch.Tensor = pytree.tree_leaves(value)[place]
    return found


def slab_device(nodes: Mapping[str, Node], binding: Binding) -> torch.device:
    """Where the first planned storage is made."""
    for op in binding.graph.ops:
        for name in op.outputs:
            if op.name in nodes and binding.tensors[name].storage in binding.regions:
                return value_of(nodes[op.name], name).device
    return torch.device("cpu")


def check_values(module: GraphModule, name: str) -> None:
    """Raise InputError for a node that is no operator, one of which no value was recorded when the graph was
    made, or one whose sizes are not plain numbers."""
    for node in module.graph.nodes:
        if node.op in ("call_module", "call_method"):
            expected = "a flat graph of operators: ExportedProgram.graph_module, make_fx"
            raise InputError(name, f"node {node.name}", node.op, expected)
        if (node.op == "placeholder" or node.users) and node.op != "get_attr" and "val" not in node.meta:
            found = "no recorded value"
            raise InputError(name, f"node {node.name}", found, "a graph by torch.export or make_fx")
        if any(map(_is_dynamic, pytree.tree_leaves(node.meta.get("val")))):
            raise InputError(name, f"node {node.name}", "a dynamic size", "a graph captured with plain sizes")


def _is_dynamic(value: object) -> bool:
    """Whether `value` is a size, or a tensor of a size, that is not a plain number."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt)


def is_item(node: Node) -> bool:
    """Whether `node` takes one result out of several."""
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return False
    return isinstance(node.args[0].meta.get("val"), (tuple, list))
