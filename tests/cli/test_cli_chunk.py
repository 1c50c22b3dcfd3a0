"""`memplan fit --chunk` of a training step, and `memplan run` of its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LANGUAGE = """
import torch
import torch.nn.functional as F
from torch import nn


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(300, 8), nn.Linear(8, 300, bias=False)

    def forward(self, words, targets):
        return F.cross_entropy(self.head(self.embed(words)).flatten(0, 1), targets.flatten())


def build():
    words = torch.randint(0, 300, (2, 64))
    return Language(), {"words": words, "targets": words}
"""
STEP = ("--training", "step", "--optimizer", "sgd")


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(LANGUAGE)
    return f"{path}:build"


def test_a_fit_in_pieces_runs_as_predicted(memplan, net: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    fits = ("--chunk", "--capacity", "230KiB")
    code, out, err = memplan("fit", net, *STEP, *fits, "--save-plan", str(plan), "--json")
    assert code == 0, err
    found = json.loads(out)
    stages = {stage["name"]: stage for stage in found["stages"]}
    chunk = stages["chunk"]
    assert (chunk["proved"], chunk["live_proved"], chunk["exact"]) == (False, False, False)
    assert chunk["extra_seconds"] >= 0
    (region,) = chunk["chunks"]
    # 128 rows of 300 numbers, several times.
    assert region["rows"] == 128
    assert 2 <= region["pieces"] <= 8
    assert chunk["arena_bytes"] + found["state_bytes"] <= 230 << 10
    assert stages["gradients"]["arena_bytes"] > 230 << 10
    code, out, err = memplan("run", net, *STEP, "--plan", str(plan), "--json")
    assert code == 0, out + err
    run = json.loads(out)
    assert run["difference_bytes"] == 0
    assert run["passed"]
    assert run["equality"]["exact"] or run["equality"]["close"]
    assert run["order"]["pieces"] > 0


def test_pieces_are_asked_for_and_prove_nothing(memplan, net: str) -> None:
    _, out, _ = memplan("fit", net, *STEP, "--only", "in_place", "--json")
    assert "chunk" not in out
    little = str(json.loads(out)["state_bytes"] + 100)
    code, out, _ = memplan("fit", net, *STEP, "--only", "in_place,chunk", "--capacity", little, "--json")
    found = json.loads(out)
    assert (code, found["verdict"]) == (3, "undecided")
    code, out, _ = memplan("fit", net, *STEP, "--chunk", "--capacity", "1KiB", "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "does not fit")
    _, out, _ = memplan("fit", net, *STEP, "--chunk")
    assert "in pieces, other last digits" in out
    assert "results have other last digits, and nothing is proved" in out
