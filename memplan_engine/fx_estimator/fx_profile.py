"""Bytes alive along an fx graph, before and after each op's releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memplan_engine.fx_estimator.aliasing import Aliasing, FxStorage, IsReleasable, SizeOf, Storages
from memplan_engine.fx_estimator.published import PublishedAliasing
from memplan_engine.lifetimes import Unread

if TYPE_CHECKING:
    from torch.fx import Graph, Node

CALLS = ("call_function", "call_method", "call_module")


def build_memory_profile(
    graph: Graph,
    size_of: SizeOf,
    is_releasable: IsReleasable,
    *,
    aliasing: Aliasing | None = None,
    unread: Unread = Unread.HELD,
    source: str = "graph",
) -> list[int]:
    """Bytes alive: first those of the placeholders, then for each call node, views and getitems included, one
    entry just after it has run and one after what it was the last to read has been released.

    With the defaults the entries are those of PyTorch's published estimator (`PublishedAliasing`).

    Parameters
    ----------
    graph: an `fx.Graph` whose nodes have fake values in `meta["val"]`, as AOTAutograd's have.
    size_of: bytes of a node's value; the storage rule takes the sizes of storages and does not ask it.
    is_releasable: asked of the node that made a storage; of a placeholder's, whether the caller gives it up.
    unread: HELD keeps values without readers to the end, as `fx.Interpreter` does; FREED releases them with
        the node that made them, placeholders with the first call.
    source: what errors call the graph.

    Raises
    ------
    InputError: see the rules.
    """
    return profile_of(
        graph, (aliasing or PublishedAliasing()).storages(graph, size_of, source), is_releasable, unread
    )


def profile_of(
    graph: Graph, storages: Storages, is_releasable: IsReleasable, unread: Unread = Unread.HELD
) -> list[int]:
    """As `build_memory_profile`, from `storages` that are known already."""
    calls = [node for node in graph.nodes if node.op in CALLS]
    released = _released(graph, storages, unread)
    before = [node for node in graph.nodes if node.op not in CALLS]
    profile = [sum(storage.nbytes for node in before for storage in storages.made.get(node, ()))]
    for node in calls:
        profile.append(profile[-1] + sum(storage.nbytes for storage in storages.made.get(node, ())))
        free = [s for s in released.get(node, ()) if all(is_releasable(owner) for owner in s.owners)]
        profile.append(profile[-1] - sum(storage.nbytes for storage in free))
    return profile


def _released(graph: Graph, storages: Storages, unread: Unread) -> dict[Node, list[FxStorage]]:
    """Each node → what goes after it, if it may. What goes after the output node never goes."""
    last: dict[FxStorage, Node] = {}
    if unread is Unread.FREED:
        first_call = next((node for node in graph.nodes if node.op in CALLS), None)
        for node, made in storages.made.items():
            maker = node if node.op in CALLS else first_call
            last |= {storage: maker for storage in made if maker is not None}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            last |= dict.fromkeys(storages.read[used], node)
    stay = storages.fixed | (storages.unread if unread is Unread.HELD else frozenset())
    released: dict[Node, list[FxStorage]] = {}
    for storage, reader in last.items():
        if storage not in stay:
            released.setdefault(reader, []).append(storage)
    return released
