"""Costs of ops by a roofline: by hand, and operations against torch's own counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memplan_engine.accelerators.presets import PRESETS, accelerator
from memplan_engine.analysis.op_costs import op_flops, op_seconds
from memplan_engine.graph import Graph, Op, Tensor
from tests.support.graphs import make_graph

pytest.importorskip("torch")
import torch
from torch import nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from memplan_engine import capture


class Matrices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x).relu())
        return torch.baddbmm(y @ y.transpose(1, 2), y, y.transpose(1, 2))


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 3, stride=2, groups=2))


MODELS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (Matrices, (3, 5, 16)),
    (convolutions, (2, 4, 9, 9)),
]


def flops_of(graph: Graph) -> int:
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    return sum(op_flops(op, tensors) for op in graph.ops)


@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_operations_are_those_of_torchs_own_counter(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    model, given = make(), torch.rand(shape)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(given)
    assert flops_of(capture(model, (given,))) == counter.get_total_flops() > 0


def test_attention_is_that_of_torchs_own_counter() -> None:
    """Which does not count the kernel of the CPU, but has the formulas."""
    query, key, value = (2, 3, 8, 16), (2, 3, 5, 16), (2, 3, 5, 12)
    shapes = {"q": query, "k": key, "v": value, "o": (2, 3, 8, 12), "g": (2, 3, 8, 12)}
    tensors = {name: Tensor(name, shape, "float32", 4, name) for name, shape in shapes.items()}
    forward = Op("f", "aten._scaled_dot_product_flash_attention", ("q", "k", "v"), ("o",))
    backward = Op("b", "aten._scaled_dot_product_flash_attention_backward", ("g", "q", "k", "v"), ("o",))
    assert op_flops(forward, tensors) == sdpa_flop_count(query, key, value)
    assert op_flops(backward, tensors) == sdpa_backward_flop_count(shapes["g"], query, key, value)


def test_a_roofline_by_hand() -> None:
    """At 1.555 TB/s and 19.5 TFLOP/s a product of 1,024 takes what its operations take, a sum its bytes."""
    gpu, number = accelerator("a100-40"), 1024
    nbytes = 4 * number * number
    tensors = [Tensor(name, (number, number), "float32", nbytes, name) for name in "xyz"]
    ops = (
        Op("p", "aten.mm", ("x", "x"), ("y",)),
        Op("s", "aten.add", ("x", "y"), ("z",)),
        Op("v", "aten.t", ("z",), ("w",)),
    )
    graph = make_graph(ops, dict.fromkeys("xyz", nbytes), inputs=("x",), outputs=("w",), views={"w": "z"})
    tensors.append(Tensor("w", (number, number), "float32", nbytes, "z"))
    graph = Graph(graph.name, graph.storages, tuple(tensors), graph.ops, ("x",), ("w",), ())
    product, total, view = op_seconds(graph, gpu)
    assert product == pytest.approx(2 * number**3 / 19.5e12)
    assert total == pytest.approx(3 * nbytes / 1.555e12)
    assert view == 0


def test_every_preset_says_how_quick_it_is() -> None:
    for gpu in PRESETS.values():
        assert 1e12 < gpu.speed.bandwidth < 1e13
        assert 1e13 < gpu.speed.flops32 < gpu.speed.flops16 < 3e15
        assert gpu.speed.source
