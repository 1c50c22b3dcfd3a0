"""Predicted eager runs of the manifest against what another process measures, to the byte."""

from __future__ import annotations

import pytest
import torch

from benchmarks.eager_export import exported
from benchmarks.eager_manifest import MODELS
from benchmarks.eager_prediction import INFERENCE, Row, measure, predict, table
from benchmarks.eager_variants import CHECKPOINTED, HALVED, TRAINED, build

SOME = ["lstm", "gpt2 checkpointed", "mlp autocast", "vit bfloat16"]
STEPS = [*TRAINED, *CHECKPOINTED]
# The passes are the same whichever optimizer follows: all of them in one, a part shows what the others do.
EVERY = {
    INFERENCE: list(MODELS),
    "adam": [*STEPS, *HALVED[::3]],
    "sgd": [*STEPS[::2], *HALVED[1::3]],
    "adamw": [*STEPS[1::2], *HALVED[2::3]],
}


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_what_returns_caches_is_exported_and_what_branches_on_values_is_named() -> None:
    assert set(exported(*build("gpt2"))) == {"export_seconds"}
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


@pytest.mark.slow
def test_steps_of_some_models_are_equal_to_the_byte() -> None:
    assert wrong("adamw", SOME) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", EVERY)
def test_all_models_are_equal_to_the_byte(run: str) -> None:
    assert len(MODELS) >= 40
    assert wrong(run, EVERY[run]) == []
