"""Which storages go into the slab, and how each of them gets there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.graph import PRODUCED, Op, Role, Tensor, span
from memplan_engine.runtime.slab.binding import Binding
from memplan_engine.runtime.slab.out_calls import (
    COMPOSITES,
    FOLDS,
    ONE_TYPE,
    PARTS,
    UNTRUSTED,
    OpCall,
    folds_otherwise,
    generated_out,
    mixes_types,
    native_out,
    qualified_name,
    write_joined,
)
from memplan_engine.runtime.slab.out_equivalents import Equivalent, find_equivalent
from memplan_engine.runtime.slab.slab_report import MadeStorage, Way
from memplan_engine.torch_capture.torch_run import attribute_of, kind_of, tensor_of

POLICIES = ("native", "all")
RESIZING = ("aten.resize_", "aten.resize_as_", "aten.set_")
"""Operators that give a tensor another storage, or its storage another size."""
BY_PLACE = ("aten.as_strided", "aten.as_strided_", "aten.as_strided_copy", "aten.as_strided_scatter")
"""Operators that count from the beginning of a storage, whatever part of it they are given."""

InPlaceWrite = tuple[OpOverload | Equivalent | None, Way, str]
"""What writes the results of a node in place, the way that is, and why nothing does."""
STEPWISE = ("aten.masked_fill", "aten.index_put", "aten.pad", "aten.constant_pad_nd")
"""Operators whose equivalents write their results in several steps."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one node writes: `results` are its results that lie in the slab, by their place among all of them,
    as tensor names; `write` is the overload or the equivalent that puts them there, None for a copy. `over`
    is the input that the result lies on, where torch may have other strides for it."""

    way: Way
    results: Mapping[int, str]
    write: OpOverload | Equivalent | None = None
    over: Node | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """By node name, and for every storage made, in order, how and why."""

    by_node: Mapping[str, Choice]
    storages: tuple[MadeStorage, ...]
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
    storages: list[MadeStorage] = []
    seen: set[str] = set()
    placed: set[str] = set()
    kept = _kept_whole(nodes, binding)
    for op in binding.graph.ops:
        fresh = _fresh(op, binding, seen)
        if not fresh:
            continue
        node = nodes.get(op.name)
        reasons = {
            tensor.name: kept.get(tensor.storage) or _obstacle(tensor, node, binding, policy, device)
            for tensor in fresh
        }
        candidates = {tensor.name for tensor in fresh if not reasons[tensor.name]}
        way, reason = Way.LEFT, ""
        if candidates and node is not None:
            choice, reason = _choose_way(node, op, candidates, binding, policy, placed)
            way = choice.way
            if way is not Way.LEFT:
                by_node[op.name] = choice
        for tensor in fresh:
            own = (way, reason) if tensor.name in candidates else (Way.LEFT, reasons[tensor.name])
            nbytes = binding.storages[tensor.storage].nbytes
            storages.append(MadeStorage(tensor.storage, nbytes, op.name, op.kind, *own))
            if own[0] is not Way.LEFT:
                placed.add(tensor.storage)
    return Choices(by_node, tuple(storages), device)


def _kept_whole(nodes: Mapping[str, Node], binding: Binding) -> dict[str, str]:
    """The storages that have to be storages of their own, and why."""
    reasons: dict[str, str] = {}
    for op in reversed(binding.graph.ops):
        node = nodes.get(op.name)
        storages = [binding.tensors[name].storage for name in (*op.inputs, *op.mutates)]
        if op.kind in RESIZING:
            reasons.update(dict.fromkeys(storages, "resized later on"))
        elif node is not None and _counts_from_the_beginning(node):
            reasons.update(dict.fromkeys(storages, "an op counts from the beginning of its storage"))
        elif node is not None and copies_storage(node):
            # What is made lies in its storage where its argument lies in the argument's.
            result = binding.tensors[node.name].storage
            if result in reasons and isinstance(node.args[0], Node):
                reasons.setdefault(binding.tensors[tensor_of(node.args[0])].storage, reasons[result])
    return reasons


def _counts_from_the_beginning(node: Node) -> bool:
    """Whether `node`, or a node of a graph that it calls, is one of `BY_PLACE`."""
    if isinstance(node.target, HigherOrderOperator):
        parents = [arg for arg in node.args if isinstance(arg, Node) and arg.op == "get_attr"]
        modules = [attribute_of(node.graph.owning_module, parent) for parent in parents]  # type: ignore[arg-type]
        graphs = [module.graph for module in modules if isinstance(module, GraphModule)]
        return any(_counts_from_the_beginning(inner) for graph in graphs for inner in graph.nodes)
    return node.op == "call_function" and kind_of(node) in BY_PLACE


def copies_storage(node: Node) -> bool:
    """Whether the kernel of `node` copies the whole storage that its first argument shows."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in PARTS


def _fresh(op: Op, binding: Binding, seen: set[str]) -> list[Tensor]:
    """The outputs of `op` that begin a storage with bytes in it."""
    fresh = []
    for name in op.outputs:
        tensor = binding.tensors[name]
        storage = binding.storages[tensor.storage]
        if storage.name in seen or storage.role not in PRODUCED:
            continue
        seen.add(storage.name)
        if storage.nbytes:
            fresh.append(tensor)
    return fresh


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


def _choose_way(
    node: Node, op: Op, candidates: set[str], binding: Binding, policy: str, placed: set[str]
) -> tuple[Choice, str]:
    results = {index: name for index, name in results_of(node) if name in candidates}
    whole = all(_is_whole(binding.tensors[name], binding) for name in results.values())
    write, way, reason = in_place_write(node)
    overwritten = {
        storage
        for name in results.values()
        for storage in binding.overwrites.get(binding.tensors[name].storage, ())
    }
    if overwritten & placed:
        write, way, reason = _over_its_inputs(node, overwritten & placed, binding, (write, way, reason))
    if write is not None and not whole:
        write, reason = None, "its storage is larger than its result"
    if write is not None:
        return Choice(way, results, write, _laid_out_anew(node, overwritten & placed, binding)), ""
    if policy == "native":
        return Choice(Way.LEFT, results), reason
    # A result that a call does not have is one without elements here, and none at all there: the overload
    # that torch generates refuses memory for it.
    told = all(value_of(node, name).numel() for _, name in results_of(node))
    generated = generated_out(node.target) if whole and told and _all_tensors(node) else None
    if generated is not None:
        return Choice(Way.GENERATED, results, generated), reason
    return Choice(Way.COPIED, results), reason


def _over_its_inputs(
    node: Node, overwritten: set[str], binding: Binding, choice: InPlaceWrite
) -> InPlaceWrite:
    """What writes the result of `node` over the storages `overwritten`, which it reads: `choice` where that
    is one kernel, which goes element by element, or a concatenation that leaves them where they are."""

    def is_overwritten(operand: Node) -> bool:
        tensor = binding.tensors.get(tensor_of(operand))
        return tensor is not None and tensor.storage in overwritten

    if kind_of(node) == "aten.cat":
        inputs: Any = node.args[0]
        in_place = frozenset(number for number, operand in enumerate(inputs) if is_overwritten(operand))
        joined = Equivalent(lambda op_call: True, lambda site: write_joined(site, in_place))
        return joined, Way.EQUIVALENT, ""
    # They copy their first input before they read the others.
    stepwise = isinstance(choice[0], Equivalent) and kind_of(node) in STEPWISE
    if stepwise and any(map(is_overwritten, node.all_input_nodes[1:])):
        return None, Way.LEFT, "writes over what it reads in more than one step"
    return choice


def _laid_out_anew(node: Node, overwritten: set[str], binding: Binding) -> Node | None:
    """The input that the result of `node` lies on, where they have a dimension of size 1: strides say nothing
    there, real ones are not those captured, and torch compares them all the same."""
    result = node.meta["val"]
    for operand in node.all_input_nodes if isinstance(result, torch.Tensor) and 1 in result.shape else ():
        value, tensor = operand.meta.get("val"), binding.tensors.get(tensor_of(operand))
        on_it = tensor is not None and tensor.storage in overwritten
        if on_it and isinstance(value, torch.Tensor) and value.shape == result.shape:
            return operand
    return None


def in_place_write(node: Node) -> InPlaceWrite:
    """What writes the results of `node` into memory that it is given; why nothing does."""
    if isinstance(node.target, HigherOrderOperator):
        return None, Way.LEFT, "calls sub-graphs"
    if not isinstance(node.target, OpOverload):
        return None, Way.LEFT, "a Python function"
    equivalent = find_equivalent(OpCall(node))
    if equivalent is not None:
        return equivalent, Way.EQUIVALENT, ""
    overload = native_out(node.target)
    if overload is not None and qualified_name(overload) in COMPOSITES and folds_otherwise(OpCall(node)):
        return None, Way.LEFT, FOLDS
    if overload is not None and mixes_types(OpCall(node)):
        return None, Way.LEFT, ONE_TYPE
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
    for index, leaf in enumerate(pytree.tree_leaves(value)):
        if isinstance(leaf, torch.Tensor):
            yield index, f"{node.name}.{index}"


def value_of(node: Node, tensor: str) -> torch.Tensor:
    """The captured (fake) tensor of that name among the results of `node`."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return value
    index = int(tensor.rpartition(".")[2])
    leaf: torch.Tensor = pytree.tree_leaves(value)[index]
    return leaf


def slab_device(nodes: Mapping[str, Node], binding: Binding) -> torch.device:
    """Where the first planned storage is made."""
    for op in binding.graph.ops:
        for name in op.outputs:
            if op.name in nodes and binding.tensors[name].storage in binding.regions:
                return value_of(nodes[op.name], name).device
    return torch.device("cpu")


def check_values(module: GraphModule, name: str) -> None:
    """Raise InputError for a node that is no operator, one of which no value was recorded when the graph was
    made, or one whose sizes are not plain numbers. Numbers that a run works out for itself (`sym_ite` of an
    item, for a check) are no sizes: a tensor that had one for its size would be refused."""
    for node in module.graph.nodes:
        if node.op in ("call_module", "call_method"):
            expected = "a flat graph of operators: ExportedProgram.graph_module, make_fx"
            raise InputError(name, f"node {node.name}", node.op, expected)
        if (node.op == "placeholder" or node.users) and node.op != "get_attr" and "val" not in node.meta:
            found = "no recorded value"
            raise InputError(name, f"node {node.name}", found, "a graph by torch.export or make_fx")
        if any(_is_dynamic(leaf, node) for leaf in pytree.tree_leaves(node.meta.get("val"))):
            raise InputError(name, f"node {node.name}", "a dynamic size", "a graph captured with plain sizes")


def _is_dynamic(value: object, node: Node) -> bool:
    """Whether `value`, of `node`, is a tensor of a size that is not a plain number, or such a size among the
    inputs."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))
    return isinstance(value, torch.SymInt) and node.op == "placeholder"
