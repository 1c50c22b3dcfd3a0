"""Peak memory of a forward graph and the backward graph that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan_engine.fx_estimator.aliasing import Aliasing, SizeOf
from memplan_engine.fx_estimator.fx_profile import profile_of
from memplan_engine.fx_estimator.fx_sizes import is_not_primal, size_of_node
from memplan_engine.fx_estimator.published import PublishedAliasing
from memplan_engine.lifetimes import Unread

if TYPE_CHECKING:
    from torch.fx import Graph, Node


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
    """What the forward returns and stays alive beside the backward graph's inputs, in bytes, and the names of
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
