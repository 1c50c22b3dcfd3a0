"""Models with dynamic shapes, and formulas worked out at values without the engine's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from memplan_engine import Graph
from memplan_engine.symbolic import parse


def worked_out(formula: str, plain: int, values: Mapping[str, int]) -> int:
    """What `formula` is at `values`, by Python and by the engine; `plain` where it is empty."""
    if not formula:
        return plain
    number = eval(formula, {"__builtins__": {}, "min": min, "max": max}, dict(values))
    assert parse(formula, values).at(values) == number
    return int(number)


def sizes_at(graph: Graph, values: Mapping[str, int]) -> list[int]:
    """Bytes of every storage at `values`."""
    return [worked_out(storage.formula, storage.nbytes, values) for storage in graph.storages]


def shapes_at(graph: Graph, values: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shape of every tensor at `values`."""
    return [
        tuple(worked_out(formula, 0, values) for formula in tensor.formulas) or tensor.shape
        for tensor in graph.tensors
    ]


class Views(nn.Module):
    """Splits, views, expansions, copies of views, and sizes reckoned from sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        left, right = y.split([5, 7], -1)
        half = x.shape[1] // 2
        return (
            torch.cat([left, right, left], -1),
            y.view(x.shape[0], -1),
            y.view(-1, 12).t().contiguous(),
            y.unsqueeze(0).expand(3, -1, -1, -1).reshape(3, -1),
            (y[:, :half] * 2).flatten(),
            torch.zeros(half + 1, x.shape[0]),
            torch.zeros(torch.sym_max(x.shape[0], x.shape[1])),
        )


def rows(batch: int, seq: int) -> tuple[torch.Tensor]:
    """Inputs of `Views`."""
    return (torch.zeros(batch, seq, 8),)


class Tokens(nn.Module):
    """A network on tokens that leans on operators with size rules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.register_buffer("kernel", torch.ones(4, 8, 3), persistent=False)
        self.register_buffer("back", torch.ones(8, 4, 3), persistent=False)

    def forward(self, ids: torch.Tensor) -> Any:
        e = self.encoder(self.embed(ids))
        g = e.transpose(1, 2)
        return (
            functional.interpolate(g, scale_factor=2.5),
            functional.avg_pool1d(functional.pad(g, (1, 2)), 3, 2, ceil_mode=True),
            functional.conv1d(g, self.kernel, stride=2, padding=1),
            functional.conv_transpose1d(g, self.back, stride=2),
            functional.max_pool2d(e[:, None], 2, ceil_mode=True),
            e.unfold(1, 2, 2) * 1,
            torch.fft.rfft(g).abs(),
            torch.einsum("btd,bsd->bts", e, e),
            e.masked_fill(ids[..., None] > 3, 0.0).topk(2, 1)[0],
            torch.arange(0, ids.shape[1], 3),
            e[:, ids.shape[1] // 2 :] * 2,
            functional.one_hot(ids, 10).repeat(1, 2, 1),
        )


def convolutions() -> nn.Module:
    """Strided convolutions and a pooling that rounds up, on images of any size."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(8, 8, 3, padding=1, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


class Positive(nn.Module):
    """Keeps the rows whose sum is not zero: how many depends on the data."""

    def forward(self, x: torch.Tensor) -> Any:
        rows = x.sum(1).nonzero()[:, 0]
        return x[rows] * 2, torch.zeros(x.shape[0] * 2)


def plain_factory() -> Any:
    """(model, args)."""
    return Views(), (torch.zeros(2, 8, 8),)


def dynamic_factory() -> Any:
    """(model, args, kwargs, dynamic shapes)."""
    return Views(), (torch.zeros(2, 8, 8),), {}, {"x": {0: torch.export.Dim("batch", max=64)}}


def dictionary_factory() -> Any:
    """The same by names, in the form of the command line."""
    return {"model": Views(), "kwargs": {"x": torch.zeros(2, 8, 8)}, "dynamic_shapes": "x:0=batch[1:64]"}
