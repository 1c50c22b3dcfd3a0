"""`memplan fit --largest`: the largest batch of a factory's training step, or of a graph with symbols."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

NET = """
import torch
from torch import nn


def build(batch=1, width=16):
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 1))
    return {"model": model, "args": (torch.randn(batch, width),), "loss": lambda y: y.square().mean()}
"""
STEP = ("--training", "step", "--only", "in_place,reorder,gradients")


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path}/net.py:build"


def needed(memplan, model: str, *options: str) -> int:
    code, out, err = memplan("fit", model, *options, "--json")
    assert code == 0, err
    return int(json.loads(out)["needed_bytes"])


def test_the_largest_batch_of_a_step_and_the_plan_of_it(memplan, net: str, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    code, out, err = memplan(
        "fit", net, *STEP, "--capacity", "64KiB", "--largest", "batch=1:4096", "--save-plan", plan, "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    best = found["largest"]["value"]
    # Against fits of these batches by themselves.
    assert needed(memplan, f"{net}(batch={best})", *STEP) <= 64 << 10
    assert needed(memplan, f"{net}(batch={best + 1})", *STEP) > 64 << 10
    assert found["largest"]["next_does_not_fit_proved"] is True
    assert found["needed_bytes"] == next(
        each["needed_bytes"] for each in found["largest"]["tried"] if each["value"] == best
    )
    assert f"build(batch={best})" in err
    code, out, err = memplan("run", f"{net}(batch={best})", "--training", "step", "--plan", plan, "--json")
    assert code == 0, out + err


def test_the_largest_symbol_of_a_graph(memplan, net: str, tmp_path: Path) -> None:
    graph = str(tmp_path / "net.json")
    code, _, err = memplan("capture", f"{net}(batch=4)", "--dynamic", "input:0=batch[2:4096]", "-o", graph)
    assert code == 0, err
    code, out, err = memplan("fit", graph, "--capacity", "32KiB", "--largest", "batch=2:4096")
    assert code == 0, err
    best = int(out.splitlines()[0].partition(": ")[2].partition(";")[0].replace(",", ""))
    assert needed(memplan, graph, "--symbol", f"batch={best}") <= 32 << 10
    assert needed(memplan, graph, "--symbol", f"batch={best + 1}") > 32 << 10


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--largest", "batch"), "no --capacity"),
        (("--largest", "batch=9", "--capacity", "1MiB"), "'batch=9'"),
        (("--largest", "depth", "--capacity", "1MiB"), "unexpected keyword argument 'depth'"),
        (("--largest", "batch=1:8", "--capacity", "1MiB", "--training", "step", "--schedule", "no.json"), ""),
    ],
)
def test_what_cannot_be_asked(memplan, net: str, options: tuple[str, ...], found: str) -> None:
    code, out, err = memplan("fit", net, *options)
    assert (code, out, err.count("\n")) == (2, "", 1), out + err
    assert found in err


def test_none_fits(memplan, net: str) -> None:
    code, out, err = memplan("fit", net, *STEP, "--capacity", "1KiB", "--largest", "batch=2:8")
    assert code == 1, err
    assert out.startswith("No batch from 2 to 8 fits in 1 KiB: 2 does not fit, proved")
