"""Predicted eager runs of the manifest against what another process measures, to the byte."""

from __future__ import annotations

import pytest
import torch

from benchmarks import eager_manifest
from benchmarks.eager_export import exported
from benchmarks.eager_prediction import INFERENCE, Row, measure, predict, table

CHECKPOINTED = [f"{name} checkpointed" for name in eager_manifest.CHECKPOINTED]
QUICK = {INFERENCE: ["gru", "swin", "llama"], "adamw": ["lstm", "gpt2 checkpointed"]}
STEPS = [*eager_manifest.TRAINED, *CHECKPOINTED]
EVERY = {
    INFERENCE: list(eager_manifest.MODELS),
    "adam": STEPS,
    # The passes are those of Adam: half of the models each show what these optimizers do.
    "sgd": STEPS[::2],
    "adamw": STEPS[1::2],
}


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_what_returns_caches_is_exported_and_what_branches_on_values_is_named() -> None:
    assert set(exported(*eager_manifest.build("gpt2"))) == {"export_seconds"}
    assert "data-dependent" in exported(Branches(), {"x": torch.rand(3)})["not_exported"]


def test_costs_are_of_the_models_that_were_exported() -> None:
    rows = [Row("a", "inference", 8, 8, 3.0, 2.0), Row("b", "inference", 8, 8, 9.0, None, not_exported="no")]
    lines = table(rows, markdown=False)
    assert lines[-1] == "cost: median 1.50, most 1.50 (a) of torch.export, 1 models"
    assert "b: torch.export: no" in lines


def wrong(run: str, models: list[str]) -> list[str]:
    """The models of which the prediction is not what was measured."""
    measured = measure(models, run)
    return [name for name in models if not predict(name, run, measured[name]).equal]


@pytest.mark.parametrize("run", QUICK)
def test_some_models_are_equal_to_the_byte(run: str) -> None:
    assert wrong(run, QUICK[run]) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", EVERY)
def test_all_models_are_equal_to_the_byte(run: str) -> None:
    assert len(eager_manifest.MODELS) >= 40
    assert wrong(run, EVERY[run]) == []
