"""The rule of storage identity: what shares memory is seen, not guessed.

The graph is run again under fake tensors, and values that show one storage share memory. The present
`torch/_inductor/fx_passes/memory_estimator.py` compares storages, too, but recorded ones, and differs in what
it keeps alive: see docs/systems/fx_estimator.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memplan_engine.fx_estimator.aliasing import FxStorage, Interactions, Pair, SizeOf, Storages
from memplan_engine.fx_estimator.fx_graphs import BACKWARD, FORWARD, PRIMALS, matched
from memplan_engine.fx_estimator.rerun import Rerun, rerun

if TYPE_CHECKING:
    from torch.fx import Graph, Node

OUTSIDE = ("placeholder", "get_attr")
"""Nodes whose values are there before the first op runs."""


@dataclass(frozen=True, slots=True)
class StorageAliasing:
    """A storage lives as long as some value that shows it, and has the size that was allocated: `size_of`
    serves only to see that graphs match."""

    name: ClassVar[str] = "storage"

    def storages(self, graph: Graph, size_of: SizeOf | None = None, source: str = "graph") -> Storages:
        """As `Aliasing.storages`.

        Raises
        ------
        InputError: a graph that cannot be run under fake tensors (see `rerun`).
        """
        return _storages(graph, rerun(graph, source))

    def interactions(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Interactions:
        """As `Aliasing.interactions`: the storages that the forward returns in nodes which the backward graph
        does not take stay with the caller, and count where they are not among the backward's inputs anyway.
        Held are placeholders in those storages or in a primal's, and those that the forward does not return.

        Raises
        ------
        InputError: graphs that do not match (see `fx_graphs.matched`) or cannot be run under fake tensors.
        """
        returned, taken = matched(forward, backward, size_of)
        return _interactions(rerun(forward, FORWARD), returned, taken)

    def pair(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Pair:
        """As `Aliasing.pair`: what the forward saves shares storages in the backward as it does where it was
        made.

        Raises
        ------
        InputError: as `interactions`.
        """
        returned, taken = matched(forward, backward, size_of)
        run = rerun(forward, FORWARD)
        saved = {name: run.values[node] for name, node in returned.items()}
        return Pair(
            _storages(forward, run),
            _storages(backward, rerun(backward, BACKWARD, saved)),
            _interactions(run, returned, taken),
        )


def _storages(graph: Graph, run: Rerun) -> Storages:
    inner = [node for node in graph.nodes if node.op != "output"]
    owners: dict[int, list[Node]] = {}
    for node in inner:
        for identity in run.shown[node]:
            known = owners.setdefault(identity, [])
            if not known or node.op in OUTSIDE:
                known.append(node)
    storages = {key: FxStorage(run.nbytes[key], tuple(nodes)) for key, nodes in owners.items()}
    made: dict[Node, tuple[FxStorage, ...]] = {}
    for key, nodes in owners.items():
        made[nodes[0]] = (*made.get(nodes[0], ()), storages[key])
    return Storages(
        made,
        {node: tuple(storages[key] for key in run.shown[node]) for node in inner},
        frozenset(storages[key] for node in inner if not node.users for key in run.shown[node]),
        frozenset(s for s in storages.values() if any(owner.op == "get_attr" for owner in s.owners)),
    )


def _interactions(run: Rerun, returned: dict[str, Node], taken: dict[str, Node]) -> Interactions:
    inputs = (node for node in run.shown if node.op == "placeholder")
    primals = _shown(run, (node for node in inputs if node.name.startswith(PRIMALS)))
    caller = _shown(run, (node for name, node in returned.items() if name not in taken))
    handed = _shown(run, (node for name, node in returned.items() if name in taken))
    held = {
        name
        for name in taken
        if name not in returned or (primals | caller).intersection(run.shown[returned[name]])
    }
    return Interactions(sum(run.nbytes[key] for key in caller - handed), held)


def _shown(run: Rerun, nodes: Iterable[Node]) -> set[int]:
    return {identity for node in nodes for identity in run.shown[node]}
