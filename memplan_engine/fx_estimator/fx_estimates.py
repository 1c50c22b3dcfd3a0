"""Live bytes along an fx graph, and the peaks of a forward graph and the backward graph that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.fx_estimator.aliasing import (
    Aliasing,
    FxStorage,
    IsReleasable,
    SizeOf,
    Storages,
    is_not_primal,
    size_of_node,
)
from memplan_engine.fx_estimator.published import PublishedAliasing
from memplan_engine.fx_estimator.storage import StorageAliasing
from memplan_engine.lifetimes import Unread
from memplan_engine.scope import Scope, scope_summary

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from memplan_engine.formats.memplan_json.graph_format import EstimateEntry
    from memplan_engine.torch_capture.training.torch_training import TrainingCapture

CALLS = ("call_function", "call_method", "call_module")
COUNTED = (
    "the storages of both graphs, inputs and parameters among them; temporaries inside ops are not counted"
)


def build_memory_profile(
    graph: Graph,
    size_of: SizeOf,
    is_releasable: IsReleasable,
    *,
    aliasing: Aliasing | None = None,
    unread: Unread = Unread.HELD,
    source: str = "graph",
) -> list[int]:
    """Live bytes: first those of the placeholders, then for each call node, views and getitems included, one
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
    profile = [sum(storage.nbytes for node in before for storage in storages.produced.get(node, ()))]
    for node in calls:
        profile.append(profile[-1] + sum(storage.nbytes for storage in storages.produced.get(node, ())))
        free = [s for s in released.get(node, ()) if all(is_releasable(owner) for owner in s.owners)]
        profile.append(profile[-1] - sum(storage.nbytes for storage in free))
    return profile


def _released(graph: Graph, storages: Storages, unread: Unread) -> dict[Node, list[FxStorage]]:
    """Each node → what goes after it, if it may. What goes after the output node never goes."""
    last: dict[FxStorage, Node] = {}
    if unread is Unread.FREED:
        first_call = next((node for node in graph.nodes if node.op in CALLS), None)
        for node, produced in storages.produced.items():
            maker = node if node.op in CALLS else first_call
            last |= {storage: maker for storage in produced if maker is not None}
    for node in graph.nodes:
        for used in node.all_input_nodes:
            last |= dict.fromkeys(storages.read[used], node)
    stay = storages.fixed | (storages.unread if unread is Unread.HELD else frozenset())
    released: dict[Node, list[FxStorage]] = {}
    for storage, reader in last.items():
        if storage not in stay:
            released.setdefault(reader, []).append(storage)
    return released


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the two passes take, in bytes.

    forward, backward: entries as of `build_memory_profile`, those of the backward pass without the baseline.
    baseline: what the forward returned and the backward pass leaves alone.
    held: names of the backward graph's placeholders that it may not release.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    baseline: int
    held: frozenset[str]

    @property
    def forward_peak(self) -> int:
        """The largest entry of the forward pass."""
        return max(self.forward)

    @property
    def backward_peak(self) -> int:
        """The largest entry of the backward pass, the baseline included."""
        return self.baseline + max(self.backward)

    @property
    def peak(self) -> int:
        """The larger of both peaks."""
        return max(self.forward_peak, self.backward_peak)


def get_fwd_bwd_interactions(
    fwd_graph: Graph, bwd_graph: Graph, size_of: SizeOf, *, aliasing: Aliasing | None = None
) -> tuple[int, set[str]]:
    """What the forward returns and stays live beside the backward graph's inputs, in bytes, and the names of
    the backward graph's placeholders that it may not release (tangents, views of primals).

    With the default rule the answers are those of PyTorch's published estimator.

    Raises
    ------
    InputError: a graph without an output node; a placeholder `view…` that the forward does not return; one
        whose size is not that of the forward's output of its name.
    """
    baseline, held = (aliasing or PublishedAliasing()).interactions(fwd_graph, bwd_graph, size_of)
    return baseline, held


def estimate_training(
    fwd_graph: Graph,
    bwd_graph: Graph,
    *,
    aliasing: Aliasing | None = None,
    unread: Unread = Unread.HELD,
    size_of: SizeOf = size_of_node,
) -> Estimate:
    """Both passes' profiles and what connects them. Primals, placeholders called `primals…`, belong to the
    caller and are never released, nor is what `get_fwd_bwd_interactions` names.

    Raises
    ------
    InputError: see `get_fwd_bwd_interactions` and the rules.
    """
    forward, backward, (baseline, held) = (aliasing or PublishedAliasing()).pair(
        fwd_graph, bwd_graph, size_of
    )

    def may_go(node: Node) -> bool:
        return is_not_primal(node) and node.name not in held

    return Estimate(
        tuple(profile_of(fwd_graph, forward, is_not_primal, unread)),
        tuple(profile_of(bwd_graph, backward, may_go, unread)),
        baseline,
        frozenset(held),
    )


def get_peak_memory(
    fwd_graph: Graph,
    bwd_graph: Graph,
    *,
    aliasing: Aliasing | None = None,
    unread: Unread = Unread.HELD,
    size_of: SizeOf = size_of_node,
) -> int:
    """The peak over both passes in bytes: `estimate_training(…).peak`. With the defaults it is that of
    PyTorch's published estimator."""
    return estimate_training(fwd_graph, bwd_graph, aliasing=aliasing, unread=unread, size_of=size_of).peak


def estimate_peaks(capture: TrainingCapture) -> tuple[EstimateEntry, ...]:
    """The published rule, then storage identity with unused values freed at once and held to the
    end; the last is what `fx.Interpreter` needs, to the byte. `baseline` is what the forward pass returns and
    the backward pass leaves alone; `backward_peak` has it included."""
    # Here, not above: who only asks for help need not wait for pydantic.
    from memplan_engine.formats.memplan_json.graph_format import EstimateEntry

    forward, backward = capture.forward_module.graph, capture.backward_module.graph
    estimates = []
    for aliasing, unread in (
        (PublishedAliasing(), Unread.HELD),
        (StorageAliasing(), Unread.FREED),
        (StorageAliasing(), Unread.HELD),
    ):
        estimate = estimate_training(forward, backward, aliasing=aliasing, unread=unread)
        estimates.append(
            EstimateEntry(
                rule=aliasing.name,
                unread=unread.value,
                forward_peak=estimate.forward_peak,
                baseline=estimate.baseline,
                backward_peak=estimate.backward_peak,
            )
        )
    return tuple(estimates)


def estimates_summary(estimates: Sequence[EstimateEntry]) -> list[dict[str, Any]]:
    """The estimates as plain values for machines, bytes, with what they count."""
    counted = scope_summary(Scope.GRAPH, COUNTED)
    return [{**counted, **estimate.model_dump(), "peak": estimate.peak} for estimate in estimates]
