"""`memplan observe --fake`: the figures of `memplan observe` without the run, in files that verbs open."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from memplan_engine import Graph, load
from memplan_engine.torch_capture import torch_factory

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x):
        kept = self.one(x)
        return self.two(kept.tanh()).sum() + kept.sum()

class Logs(Net):
    def forward(self, x):
        value = super().forward(x)
        self.last = value.item()
        return value

class Branches(Net):
    def forward(self, x):
        value = super().forward(x)
        return value if value > 0 else -value

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(10_000, 10_000, bias=False) for _ in range(20))
        own = nn.Parameter(torch.empty(10_000, 10_000))
        self.layers[0].weight = self.layers[1].weight = own
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()

def wide():
    return Wide(), (torch.ones(1, 10_000),)

def net():
    return Net(), (torch.ones(32, 8),)

def logs():
    return Logs(), (torch.ones(32, 8),)

def branches():
    return Branches(), (torch.ones(32, 8),)

def fails():
    raise ValueError("no such file")
"""


@pytest.fixture
def observe(memplan: Any, tmp_path: Any) -> Any:
    (tmp_path / "models.py").write_text(MODELS)
    return lambda *arguments: memplan("observe", *arguments)


def peak(said: dict[str, Any]) -> int:
    return int(next(peak for peak in said["peaks"] if peak["level"] == "dispatch")["peak_bytes"])


@pytest.mark.parametrize("options", [(), ("--training", "step", "--optimizer", "adam")])
def test_it_says_what_a_real_run_says(observe: Any, options: tuple[str, ...]) -> None:
    real = json.loads(observe("models.py:net", *options, "--json")[1])
    said = json.loads(observe("models.py:net", "--fake", *options, "--json")[1])
    assert said["scope"] == "eager_predicted"
    assert "eager, predicted" in said["counted"]
    assert said["peak_bytes"] == peak(said) == peak(real)
    assert said["peak_op"] == next(p for p in real["peaks"] if p["level"] == "dispatch")["op"]
    assert said["peak_source"].startswith(("models.py:", "torch/optim/"))
    weights = 4 * (8 * 16 + 16 + 16 * 4 + 4)
    kept = 2 * weights + 4 * 4 if options else 0
    assert said["state_bytes"] == weights + kept
    assert said["steps"] == (2 if options else 0)
    told = observe("models.py:net", "--fake", *options)[1]
    assert re.search(
        rf"together +\S+ \S+ \({said['peak_bytes'] + weights + kept:,} B\): peak and state", told
    )


def test_what_it_writes_is_planned_explained_and_compared(observe: Any, memplan: Any) -> None:
    assert observe("models.py:net", "--fake", "--training", "step", "-o", "step.json")[0] == 0
    assert isinstance(load("step.json"), Graph)
    planned = json.loads(memplan("plan", "step.json", "--json")[1])
    assert planned["scope"] == "eager_predicted"
    assert planned["peak_bytes"] <= planned["arena_bytes"]
    for line in (
        ("plan", "step.json"), ("peak", "step.json"), ("layout", "step.json"),
        ("diff", "step.json", "step.json"),
    ):  # fmt: skip
        code, out, err = memplan(*line)
        assert (code, err) == (0, ""), line
        assert "eager, predicted" in " ".join(out.split()), line
    code, out, _ = memplan("peak", "step.json")
    assert "Predicted eager peak" in out


def test_its_tables_say_what_is_counted_and_what_was_assumed(observe: Any) -> None:
    code, out, _ = observe("models.py:logs", "--fake")
    assert code == 0
    text = " ".join(out.split())
    assert "eager, predicted" in text
    assert "models.py:" in text
    assert "assumed the value of a tensor of shape (), asked for at models.py:16, as 1" in text


def test_weights_larger_than_the_machine_are_predicted(observe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 layers of 400 MB, the first two of which share theirs, on a machine of 1 GB."""
    monkeypatch.setattr(torch_factory, "memory_bytes", lambda: 10**9)
    assert observe("models.py:wide")[0] == 2
    code, out, _ = observe("models.py:wide", "--fake", "--training", "step", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["state_bytes"] == 19 * 400 * 10**6
    assert said["peak_bytes"] >= 19 * 400 * 10**6


def test_a_branch_on_data_is_one_line_that_names_it(observe: Any) -> None:
    code, out, err = observe("models.py:branches", "--fake", "-o", "run.json")
    assert (code, out) == (2, "")
    assert "at models.py:22" in err
    assert len(err.splitlines()) == 1


def test_a_factory_that_fails_with_weights_too_is_one_line(observe: Any) -> None:
    code, out, err = observe("models.py:fails", "--fake")
    assert (code, out) == (2, "")
    assert (
        err
        == "memplan: factory models.py:fails: found ValueError: no such file, expected a factory that runs\n"
    )
