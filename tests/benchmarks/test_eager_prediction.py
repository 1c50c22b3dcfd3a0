"""Predicted eager runs of the manifest against what another process measures, to the byte."""

from __future__ import annotations

import pytest

from benchmarks import eager_manifest
from benchmarks.eager_prediction import INFERENCE, measure, predict

CHECKPOINTED = [f"{name} checkpointed" for name in eager_manifest.CHECKPOINTED]
QUICK = {INFERENCE: ["gru", "swin", "llama"], "adamw": ["lstm", "gpt2 checkpointed"]}
EVERY = {
    INFERENCE: list(eager_manifest.MODELS),
    **{run: [*eager_manifest.TRAINED, *CHECKPOINTED] for run in ("sgd", "adam", "adamw")},
}


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
