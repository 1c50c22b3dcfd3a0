"""The rule that PyTorch's estimator was published with: aliases are told by the operator's name.

Source: `torch/_inductor/fx_passes/memory_estimator.py`, in the form with `AliasInfo` (before it compared
storages). Its answers are reproduced value for value, also where they are not what a run does: see
docs/systems/fx_estimator.md.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from memplan_engine.errors import InputError
from memplan_engine.fx_estimator.aliasing import (
    BACKWARD,
    FORWARD,
    PRIMALS,
    FxStorage,
    Interactions,
    Pair,
    SizeOf,
    Storages,
    matched,
)

if TYPE_CHECKING:
    from torch.fx import Graph, Node


@dataclass(frozen=True, slots=True)
class PublishedAliasing:
    """Views by torch's list of view operators, each on its first argument; every output that a getitem takes
    out of a multi-output op is a storage of its own, and what no getitem takes is one more. Outputs of a view
    (`aten.split`) are views. Everything has the size of the node, not of the storage behind it."""

    name: ClassVar[str] = "published"

    def storages(self, graph: Graph, size_of: SizeOf, source: str = "graph") -> Storages:
        """As `Aliasing.storages`.

        Raises
        ------
        InputError: a view or getitem of something that it cannot be one of (see `Aliases`).
        """
        aliases = Aliases(source)
        inner = [node for node in graph.nodes if node.op != "output"]
        for node in inner:
            aliases.see(node)
        read: dict[Node, tuple[FxStorage, ...]] = {
            node: (FxStorage(size_of(node), (node,)),) for node in inner if aliases.is_whole(node)
        }
        for origin, items in aliases.items.items():
            read |= _outputs(source, origin, items, size_of)
        produced = {node: storages for node, storages in read.items() if node not in aliases.item_of}
        read |= {view: read[origin] for view, origin in aliases.view_of.items()}
        readers = {storage for node in graph.nodes for used in node.all_input_nodes for storage in read[used]}
        unread = {storage for storages in produced.values() for storage in storages} - readers
        return Storages({n: s for n, s in produced.items() if n.op != "get_attr"}, read, frozenset(unread))

    def interactions(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Interactions:
        """As `Aliasing.interactions`: all by name. A returned node that the backward graph does not take
        counts with its own size; held are placeholders that the forward does not return, and those called
        `view…` that are views of a primal.

        Raises
        ------
        InputError: graphs that do not match (see `matched`).
        """
        returned, placeholders = matched(forward, backward, size_of)
        views = torch_views()
        held = {name for name in placeholders if name not in returned}
        for name, node in returned.items():
            if name in placeholders and name.startswith("view") and views.is_view(node):
                origin = first_argument(node)
                if origin is not None and origin.name.startswith(PRIMALS):
                    held.add(name)
        return Interactions(sum(size_of(n) for name, n in returned.items() if name not in placeholders), held)

    def pair(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Pair:
        """As `Aliasing.pair`: this rule looks at one graph at a time."""
        interactions = self.interactions(forward, backward, size_of)
        storages = self.storages(forward, size_of, FORWARD), self.storages(backward, size_of, BACKWARD)
        return Pair(*storages, interactions)


@dataclass(slots=True)
class Aliases:
    """Which nodes of a graph are views or items of which others.

    view_of: view → the node (never itself a view) whose memory it shows.
    item_of: getitem → the multi-output node that it takes one output of.
    items: multi-output node → index → getitem.
    """

    source: str
    view_of: dict[Node, Node] = field(default_factory=dict)
    item_of: dict[Node, Node] = field(default_factory=dict)
    items: dict[Node, dict[Hashable, Node]] = field(default_factory=dict)
    views: Any = field(default_factory=lambda: torch_views())

    def is_whole(self, node: Node) -> bool:
        """Whether `node` has a single storage of its own."""
        return node not in self.view_of and node not in self.item_of and node not in self.items

    def see(self, node: Node) -> None:
        """Take in the next node of the graph.

        Raises
        ------
        InputError: a view or getitem without a node as its first argument; a view of a list or tuple; a
            getitem of a tensor or of another getitem, without an index, or of an index already taken.
        """
        if self.views.is_view(node):
            origin = self._origin(node, "a view")
            if _is_several(self._value(origin)):
                raise self._error(node, f"a view of {origin.name}, which has several outputs", "of a tensor")
            self.view_of[node] = self.view_of.get(origin, origin)
        elif node.target is operator.getitem:
            self._see_item(node, self._origin(node, "a getitem"))

    def _see_item(self, node: Node, origin: Node) -> None:
        if not _is_several(self._value(origin)):
            found = f"a getitem of {origin.name}, a {type(self._value(origin)).__name__}"
            raise self._error(node, found, "of a list, tuple or dict")
        if origin in self.view_of:
            self.view_of[node] = self.view_of[origin]
            return
        if origin in self.item_of:
            raise self._error(node, f"a getitem of the getitem {origin.name}", "a getitem of an op's outputs")
        if len(node.args) < 2:
            raise self._error(node, f"a getitem of {origin.name} without an index", "an index")
        index: Any = node.args[1]
        if not isinstance(index, Hashable):
            raise self._error(node, f"a getitem of {origin.name} at {index!r}", "a single index")
        getitems = self.items.setdefault(origin, {})
        if index in getitems:
            found = f"index {index!r} of {origin.name}, which {getitems[index].name} has taken"
            raise self._error(node, found, "one getitem for each output")
        getitems[index] = node
        self.item_of[node] = origin

    def _origin(self, node: Node, noun: str) -> Node:
        origin = first_argument(node)
        if origin is None:
            found = repr(node.args[0]) if node.args else "no arguments"
            raise self._error(node, f"{noun} of {found}", f"{noun} of a node")
        return origin

    def _value(self, node: Node) -> Any:
        if "val" not in node.meta:
            raise self._error(node, "no meta['val']", "a graph captured with fake values")
        return node.meta["val"]

    def _error(self, node: Node, found: str, expected: str) -> InputError:
        return InputError(self.source, f"node {node.name}", found, expected)


def _outputs(
    source: str, origin: Node, items: dict[Hashable, Node], size_of: SizeOf
) -> dict[Node, tuple[FxStorage, ...]]:
    """A storage for each getitem of `origin`, and one for what they leave; `origin` reads all of them."""
    by_getitem = {node: FxStorage(size_of(node), (origin,)) for node in items.values()}
    claimed, whole = sum(storage.nbytes for storage in by_getitem.values()), size_of(origin)
    if claimed > whole:
        found = f"{whole} bytes, of which getitems take {claimed}"
        raise InputError(source, f"node {origin.name}", found, "no more than the whole")
    unclaimed = FxStorage(whole - claimed, (origin,))
    return {origin: (unclaimed, *by_getitem.values())} | {
        node: (storage,) for node, storage in by_getitem.items()
    }


def torch_views() -> Any:
    """torch's lists of operators; `is_view(node)` asks that of views."""
    from torch._functorch.partitioners import get_default_op_list

    return get_default_op_list()


def first_argument(node: Node) -> Node | None:
    """The node that is `node`'s first argument, if it is a node."""
    from torch.fx import Node

    return node.args[0] if node.args and isinstance(node.args[0], Node) else None


def _is_several(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict))
