"""`memplan capture --budgets`, and what `memplan fit` says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)) * 2)
        return x.square().mean()


def build():
    return Net(), (torch.randn(2048, 64),)
"""


def test_torch_s_points_are_captured_and_told_beside_ours(memplan, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    graph = str(tmp_path / "net.json")
    code, _, err = memplan(
        "capture", f"{tmp_path}/net.py:build", "--training", "joint", "--budgets", "-o", graph
    )
    assert code == 0, err
    code, out, err = memplan("fit", graph, "--json")
    assert code == 0, err
    found = json.loads(out)
    points = {each["budget"]: each for each in found["torch_budgets"]}
    assert sorted(points) == [part / 10 for part in range(11)]
    # Nothing but the ends of layers is kept at 0.
    assert points[0.0]["extra_seconds"] > points[1.0]["extra_seconds"]
    assert points[0.5]["live_bytes"] < points[1.0]["live_bytes"]
    ours = [(point["arena_bytes"], point["extra_seconds"]) for point in found["curve"]]
    for point in points.values():
        # At as many bytes or fewer ours takes no longer than torch's, up to what the next point is apart.
        fitting = [extra for arena, extra in ours if arena <= 1.05 * point["live_bytes"]]
        assert min(fitting) <= max(0.0, point["extra_seconds"]) + 0.02 * found["curve"][0]["total_seconds"]
    code, out, _ = memplan("fit", graph)
    assert (code, "torch's activation_memory_budget on the same passes" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "found"),
    [((), "no --training"), (("--training", "joint", "--partition", "min_cut"), "--partition min_cut")],
)
def test_budgets_are_of_the_default_joint_graph(memplan, options: tuple[str, ...], found: str) -> None:
    code, _, err = memplan("capture", "nowhere:build", *options, "--budgets", "-o", "net.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "--budgets" in err
    assert found in err
