"""A model whose own code reads the generator's state and puts it back: checkpoints with dropout. In another
order, and with ops that run again, it draws what it draws in eager code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = lambda: nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.3))
        self.layers = nn.ModuleList(layer() for _ in range(4))

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if place == 1 else layer(x)
        return x.square().mean()


def build():
    return Net(), (torch.randn(256, 32),)
"""
STEP = ("--training", "step", "--optimizer", "adamw")


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path}/net.py:build"


def is_exact(memplan, net: str, *options: str) -> bool:
    code, out, err = memplan("run", net, *STEP, *options, "--json")
    assert code == 0, out + err
    return bool(json.loads(out)["equality"]["exact"])


def test_another_order_draws_the_same(memplan, net: str) -> None:
    assert is_exact(memplan, net, "--reorder", "--seconds", "2")


@pytest.mark.parametrize(("random", "part"), [("keep", 1.0), ("state", 0.5)])
def test_ops_that_run_again_draw_the_same(
    memplan, net: str, tmp_path: Path, random: str, part: float
) -> None:
    fit = ("fit", net, *STEP, "--only", "in_place,reorder,gradients,recompute", "--random", random)
    code, out, err = memplan(*fit, "--seconds", "2", "--json")
    assert code == 0, err
    said = json.loads(out)
    arenas = [each["arena_bytes"] for each in said["curve"]]
    capacity = str(said["state_bytes"] + arenas[int(part * (len(arenas) - 1))])
    plan = str(tmp_path / "plan.json")
    code, out, err = memplan(*fit, "--seconds", "2", "--capacity", capacity, "--save-plan", plan)
    assert code == 0, out + err
    assert is_exact(memplan, net, "--plan", plan)
