"""What the rules of PyTorch's FX memory estimator say of one captured forward and backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.lifetimes import Unread
from memplan_engine.scope import Scope, scope_summary

if TYPE_CHECKING:
    from memplan_engine.formats.memplan_json.graph_format import About
    from memplan_engine.torch_capture.training.torch_training import TrainingCapture

COUNTED = (
    "the storages of both graphs, inputs and parameters among them; temporaries inside ops are not counted"
)


@dataclass(frozen=True, slots=True)
class PeakEstimate:
    """Peaks in bytes by one aliasing rule: inputs and parameters are counted, as the estimator does.

    `baseline` is what the forward pass returns and the backward pass leaves alone; `backward_peak` has it
    included.
    """

    rule: str
    unread: Unread
    forward_peak: int
    baseline: int
    backward_peak: int

    @property
    def peak(self) -> int:
        """The larger of both peaks."""
        return max(self.forward_peak, self.backward_peak)


def estimate_peaks(capture: TrainingCapture) -> tuple[PeakEstimate, ...]:
    """The published rule, then storage identity with values that nobody reads freed at once and held to the
    end; the last is what `fx.Interpreter` needs, to the byte."""
    from memplan_engine.fx_estimator import PublishedAliasing, StorageAliasing, estimate_training

    forward, backward = capture.forward_module.graph, capture.backward_module.graph
    found = []
    for aliasing, unread in (
        (PublishedAliasing(), Unread.HELD),
        (StorageAliasing(), Unread.FREED),
        (StorageAliasing(), Unread.HELD),
    ):
        made = estimate_training(forward, backward, aliasing=aliasing, unread=unread)
        found.append(
            PeakEstimate(aliasing.name, unread, made.forward_peak, made.baseline, made.backward_peak)
        )
    return tuple(found)


def estimates_summary(found: Sequence[PeakEstimate]) -> list[dict[str, Any]]:
    """The estimates as plain values for machines, bytes, with what they count."""
    counted = scope_summary(Scope.GRAPH, COUNTED)
    return [
        {**counted, **entry.model_dump(), "peak": estimate.peak}
        for estimate, entry in zip(found, about_estimates(found).estimates, strict=True)
    ]


def about_estimates(found: Sequence[PeakEstimate]) -> About:
    """The estimates as the header of a graph's file."""
    from memplan_engine.formats.memplan_json.graph_format import About, EstimateEntry

    return About(
        estimates=tuple(
            EstimateEntry(
                rule=each.rule,
                unread=each.unread.value,
                forward_peak=each.forward_peak,
                baseline=each.baseline,
                backward_peak=each.backward_peak,
            )
            for each in found
        )
    )
