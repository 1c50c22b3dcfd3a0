"""What keeps a graph in order once its tensors share bytes: dependencies, and a checker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.fx import GraphModule, Node

from memplan_engine.errors import InputError
from memplan_engine.runtime.slab.binding import Binding, Region

ORDER, PLACES = "memplan_order", "memplan_places"
"""Keys in a graph module's `meta`: the names of its nodes, in order, and where in the slab tensors are."""


Piece = tuple[int, int, str]
"""Bytes of the slab from the first to behind the last, and the storage that has them."""


@dataclass(frozen=True, slots=True)
class Order:
    """Nodes by name that must have run: `before` a storage takes its bytes, before it is copied out
    (`last`), and before the slab is released (`end`)."""

    before: Mapping[str, tuple[str, ...]]
    last: Mapping[str, tuple[str, ...]]
    end: tuple[str, ...]


def find_order(module: GraphModule, binding: Binding, storages: Sequence[str]) -> Order:
    """What must wait for what where `storages` share the slab; they come in the order in which they are made.

    Before a storage takes bytes, everybody who touches whatever had them last must be done. Of the touchers
    only those count from which no other one follows by data, and those from which the new storage's own op
    does not follow.
    """
    position = {node.name: index for index, node in enumerate(module.graph.nodes)}
    ancestors = _ancestors(module)
    touchers: dict[str, list[str]] = {storage: [] for storage in storages}
    for op in binding.graph.ops:
        node = op.name.split(".")[0]
        for tensor in (*op.inputs, *op.mutates, *op.outputs):
            touching = touchers.get(binding.tensors[tensor].storage)
            if touching is not None and (not touching or touching[-1] != node):
                touching.append(node)
    last = {storage: _sinks(nodes, position, ancestors) for storage, nodes in touchers.items()}
    before: dict[str, tuple[str, ...]] = {}
    pieces: list[Piece] = []
    for storage in storages:
        maker = touchers[storage][0]
        waits: dict[str, None] = {}
        pieces, occupants = _occupy(pieces, binding.regions[storage])
        for earlier in occupants:
            waits.update(dict.fromkeys(last[earlier]))
        before[storage] = tuple(
            name
            for name in waits
            if position[name] < position[maker] and not ancestors[maker] >> position[name] & 1
        )
    everybody = sorted({name for nodes in touchers.values() for name in nodes}, key=position.__getitem__)
    return Order(before, last, _sinks(everybody, position, ancestors))


def _ancestors(module: GraphModule) -> dict[str, int]:
    """For each node the set, as bits by place, of the nodes that it follows from by data."""
    bits: dict[Node, int] = {}
    position: dict[Node, int] = {}
    for index, node in enumerate(module.graph.nodes):
        position[node] = index
        mask = 0
        for source in node.all_input_nodes:
            mask |= bits[source] | 1 << position[source]
        bits[node] = mask
    return {node.name: mask for node, mask in bits.items()}


def _sinks(nodes: Iterable[str], place: Mapping[str, int], ancestors: Mapping[str, int]) -> tuple[str, ...]:
    """Those of `nodes` (in order) that no other one of them follows from."""
    kept: list[str] = []
    covered = 0
    for name in reversed(list(dict.fromkeys(nodes))):
        if not covered >> place[name] & 1:
            kept.append(name)
        covered |= ancestors[name]
    return tuple(reversed(kept))


def _occupy(pieces: list[Piece], region: Region) -> tuple[list[Piece], list[str]]:
    """Who has which bytes last once the region's are given to its storage, and who had these until now.
    `pieces` do not overlap."""
    low, high = region.low, region.high
    kept: list[Piece] = []
    before: dict[str, None] = {}
    for begin, end, storage in pieces:
        if end <= low or begin >= high:
            kept.append((begin, end, storage))
            continue
        before[storage] = None
        kept += [(a, b, storage) for a, b in ((begin, low), (high, end)) if a < b]
    return [*kept, (low, high, region.storage)], list(before)


def freeze(module: GraphModule) -> None:
    """Note the order of the nodes of `module`, and where in the slab tensors are."""
    module.meta[ORDER] = tuple(node.name for node in module.graph.nodes)
    module.meta[PLACES] = _places(module)


def _places(module: GraphModule) -> dict[str, str]:
    """The arguments of each node that says where in the slab a tensor is, as text."""
    target = torch.ops.memplan.allocate_tensor.default
    return {node.name: str(node.args) for node in module.graph.nodes if node.target is target}


def check_order(module: GraphModule) -> None:
    """Raise unless the nodes of `module`, which `insert_slab` made, are those that it made, in their order.

    The pass has made every op that takes bytes over depend on the ops that must be done with them, so that
    passes that keep dependencies keep the plan; what writes in place can be reordered all the same, and
    nodes can be added that read what is gone.

    Raises
    ------
    InputError, naming the nodes: a graph that was never frozen, one that was reordered, that has lost a node
        or got one more.
    """
    expected = module.meta.get(ORDER)
    if expected is None:
        raise InputError("order", "graph", "no recorded order", "a graph that insert_slab made")
    names = [node.name for node in module.graph.nodes]
    planned, present = set(expected), set(names)
    if added := [name for name in names if name not in planned]:
        raise InputError("order", f"node {added[0]!r}", "a node that was added", "the graph as planned")
    if missing := [name for name in expected if name not in present]:
        raise InputError("order", f"node {missing[0]!r}", "no such node", "the graph as planned")
    current = _places(module)
    for name, arguments in module.meta[PLACES].items():
        if current.get(name) != arguments:
            raise InputError(
                "order", f"node {name!r}", f"arguments {current.get(name)}", f"{arguments}, as planned"
            )
    position = {name: index for index, name in enumerate(expected)}
    for first, second in pairwise(names):
        if position[first] > position[second]:
            raise InputError("order", "graph", f"{first!r} before {second!r}", f"{second!r} before {first!r}")
