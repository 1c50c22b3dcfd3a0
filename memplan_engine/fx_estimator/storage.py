"""The rule of storage identity: what shares memory is seen, not guessed.

The graph is run again under fake tensors, and values that show one storage share memory. The present
`torch/_inductor/fx_passes/memory_estimator.py` compares storages, too, but recorded ones, and differs in what
it keeps alive: see docs/systems/fx_estimator.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
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
from memplan_engine.torch_capture.torch_fake import FakeTwins, concrete, fake_mode, quiet, tensors_of
from memplan_engine.torch_capture.torch_operators import as_allocated
from memplan_engine.torch_capture.torch_run import brief, fresh, is_higher_order

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, Node
OUTSIDE = ("placeholder", "get_attr")
"""Nodes whose values are there before the first op runs."""


@dataclass(slots=True)
class Rerun:
    """Values and storages of a run. Everything is kept alive, so that no storage is seen twice.

    values: node → what it gave.
    storages: node → identities of the storages in that value when it was made, each once, in order.
    nbytes: identity → bytes of the storage.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    storages: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    kept: list[torch.UntypedStorage] = field(default_factory=list)

    def note(self, node: Node, value: Any) -> None:
        """Take in what `node` gave."""
        storages = [leaf.untyped_storage() for leaf in tensors_of(value)]
        self.values[node] = value
        self.kept += storages
        self.storages[node] = tuple(dict.fromkeys(storage._cdata for storage in storages))
        self.nbytes |= {storage._cdata: concrete(storage.nbytes()) for storage in storages}


def rerun(graph: Graph, source: str, handed: Mapping[str, Any] | None = None) -> Rerun:
    """Run `graph` under fake tensors. A placeholder takes the value of its name in `handed`, else its
    `meta["val"]`; tensors that share a storage there share one here. Symbolic sizes take their hints.

    Raises
    ------
    InputError: a placeholder without a value, a node that fake tensors cannot run, a size that depends on
        the data.
    """
    import torch

    mode = fake_mode()
    twins = FakeTwins(mode)
    result = Rerun()

    class Interpreter(torch.fx.Interpreter):
        """Notes what each node gives, and says which node fails."""

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            """As ever, in the storages that CPU kernels allocate."""
            return as_allocated(target, super().call_function(target, args, kwargs), args, kwargs)

        def run_node(self, n: Node) -> Any:
            if n.op == "placeholder":
                value = _placeholder(n, source, handed or {}, twins)
            else:
                try:
                    with mode if n.op != "get_attr" else nullcontext():
                        value = super().run_node(n)
                except Exception as error:
                    found, expected = f"{n.target}: {brief(error)}", "an op that fake tensors can run"
                    raise InputError(source, f"node {n.name}", found, expected) from error
                if n.op == "get_attr":
                    value = twins.twin(value)
                elif is_higher_order(n):
                    value = fresh(value)
            try:
                result.note(n, value)
            except InputError as error:
                raise InputError(source, f"node {n.name}", error.found, error.expected) from None
            return value

    module = graph.owning_module or torch.nn.Module()
    interpreter = Interpreter(module, garbage_collect_values=False, graph=graph)
    interpreter.extra_traceback = False
    with torch.no_grad(), quiet():
        interpreter.run(enable_io_processing=False)
    return result


def _placeholder(node: Node, source: str, handed: Mapping[str, Any], twins: FakeTwins) -> Any:
    if node.name not in handed and "val" not in node.meta:
        raise InputError(source, f"node {node.name}", "no meta['val']", "a graph captured with fake values")
    value = handed[node.name] if node.name in handed else node.meta["val"]
    try:
        return twins.twin(value)
    except InputError as error:
        raise InputError(source, f"node {node.name}", error.found, error.expected) from None


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
        InputError: graphs that do not match (see `matched`) or cannot be run under fake tensors.
        """
        returned, placeholders = matched(forward, backward, size_of)
        return _interactions(rerun(forward, FORWARD), returned, placeholders)

    def pair(self, forward: Graph, backward: Graph, size_of: SizeOf) -> Pair:
        """As `Aliasing.pair`: what the forward saves shares storages in the backward as it does where it was
        made.

        Raises
        ------
        InputError: as `interactions`.
        """
        returned, placeholders = matched(forward, backward, size_of)
        run = rerun(forward, FORWARD)
        saved = {name: run.values[node] for name, node in returned.items()}
        return Pair(
            _storages(forward, run),
            _storages(backward, rerun(backward, BACKWARD, saved)),
            _interactions(run, returned, placeholders),
        )


def _storages(graph: Graph, run: Rerun) -> Storages:
    inner = [node for node in graph.nodes if node.op != "output"]
    owners: dict[int, list[Node]] = {}
    for node in inner:
        for identity in run.storages[node]:
            entry = owners.setdefault(identity, [])
            if not entry or node.op in OUTSIDE:
                entry.append(node)
    storages = {key: FxStorage(run.nbytes[key], tuple(nodes)) for key, nodes in owners.items()}
    produced: dict[Node, tuple[FxStorage, ...]] = {}
    for key, nodes in owners.items():
        produced[nodes[0]] = (*produced.get(nodes[0], ()), storages[key])
    return Storages(
        produced,
        {node: tuple(storages[key] for key in run.storages[node]) for node in inner},
        frozenset(storages[key] for node in inner if not node.users for key in run.storages[node]),
        frozenset(s for s in storages.values() if any(owner.op == "get_attr" for owner in s.owners)),
    )


def _interactions(run: Rerun, returned: dict[str, Node], placeholders: dict[str, Node]) -> Interactions:
    inputs = (node for node in run.storages if node.op == "placeholder")
    primals = _storage_ids(run, (node for node in inputs if node.name.startswith(PRIMALS)))
    caller = _storage_ids(run, (node for name, node in returned.items() if name not in placeholders))
    handed = _storage_ids(run, (node for name, node in returned.items() if name in placeholders))
    held = {
        name
        for name in placeholders
        if name not in returned or (primals | caller).intersection(run.storages[returned[name]])
    }
    return Interactions(sum(run.nbytes[key] for key in caller - handed), held)


def _storage_ids(run: Rerun, nodes: Iterable[Node]) -> set[int]:
    return {identity for node in nodes for identity in run.storages[node]}
