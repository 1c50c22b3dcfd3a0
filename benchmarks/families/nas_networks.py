"""Networks that a search has found, and random ones, re-implemented from their published cells: where order
matters most. Built on the meta device, for capture alone.

The cells are those of the papers: DARTS (Liu et al., 2019, its second-order cell), NASNet-A (Zoph et al.,
2018), AmoebaNet-A (Real et al., 2019). RandWire is that of Xie et al. (2019), Watts-Strogatz with 32 nodes,
K 4, P 0.75.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import torch
from torch import nn

Edge = tuple[str, int]


@dataclass(frozen=True)
class Cell:
    """Nodes 0 and 1 are the outputs of the two cells before; each further node is the sum of two edges, each
    a kind and the node from which it comes. The nodes `joined` are the output."""

    normal: tuple[Edge, ...]
    normal_joined: tuple[int, ...]
    reduction: tuple[Edge, ...]
    reduction_joined: tuple[int, ...]
    pads: bool = True
    """Whether the image is padded before it is halved."""


CELLS = {
    "darts": Cell(
        (
            ("sep3", 0), ("sep3", 1), ("sep3", 0), ("sep3", 1),
            ("sep3", 1), ("skip", 0), ("skip", 0), ("dil3", 2),
        ),
        (2, 3, 4, 5),
        (
            ("max", 0), ("max", 1), ("skip", 2), ("max", 1),
            ("max", 0), ("skip", 2), ("skip", 2), ("max", 1),
        ),
        (2, 3, 4, 5),
        pads=False,
    ),
    "nasnet": Cell(
        (
            ("sep5", 1), ("sep3", 0), ("sep5", 0), ("sep3", 0), ("avg", 1),
            ("skip", 0), ("avg", 0), ("avg", 0), ("sep3", 1), ("skip", 1),
        ),
        (2, 3, 4, 5, 6),
        (
            ("sep5", 1), ("sep7", 0), ("max", 1), ("sep7", 0), ("avg", 1),
            ("sep5", 0), ("skip", 3), ("avg", 2), ("sep3", 2), ("max", 1),
        ),
        (4, 5, 6),
    ),
    "amoebanet": Cell(
        (
            ("avg", 0), ("max", 1), ("sep3", 0), ("sep5", 2), ("sep3", 0),
            ("avg", 3), ("sep3", 1), ("skip", 1), ("skip", 0), ("avg", 1),
        ),
        (4, 5, 6),
        (
            ("avg", 0), ("sep3", 1), ("max", 0), ("sep7", 2), ("sep7", 0),
            ("avg", 1), ("max", 0), ("max", 1), ("long7", 0), ("sep3", 5),
        ),
        (3, 4, 6),
    ),
}  # fmt: skip


def _unit(*layers: nn.Module, channels: int) -> list[nn.Module]:
    return [nn.ReLU(), *layers, nn.BatchNorm2d(channels)]


def _separable(size: int, channels: int, stride: int, dilation: int = 1, times: int = 2) -> nn.Module:
    layers: list[nn.Module] = []
    for number in range(times):
        padding = dilation * (size - 1) // 2
        step = stride if number == 0 else 1
        depth = nn.Conv2d(channels, channels, size, step, padding, dilation, channels, bias=False)
        layers += _unit(depth, nn.Conv2d(channels, channels, 1, bias=False), channels=channels)
    return nn.Sequential(*layers)


class Halved(nn.Module):
    """Half the size in both directions by two convolutions, one of them a pixel later. NASNet and AmoebaNet
    pad the image before they shift it; DARTS cuts a view (`FactorizedReduce`), which makes nothing."""

    def __init__(self, before: int, channels: int, pads: bool) -> None:
        super().__init__()
        self.pads = pads
        self.one = nn.Conv2d(before, channels // 2, 1, 2, bias=False)
        self.other = nn.Conv2d(before, channels - channels // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        shifted = (nn.functional.pad(x, (0, 1, 0, 1)) if self.pads else x)[:, :, 1:, 1:]
        joined: torch.Tensor = self.norm(torch.cat([self.one(x), self.other(shifted)], 1))
        return joined


def _edge(kind: str, channels: int, stride: int, pads: bool) -> nn.Module:
    if kind == "skip":
        return nn.Identity() if stride == 1 else Halved(channels, channels, pads)
    if kind == "max":
        return nn.MaxPool2d(3, stride, 1)
    if kind == "avg":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if kind == "long7":
        wide = nn.Conv2d(channels, channels, (1, 7), (1, stride), (0, 3), bias=False)
        high = nn.Conv2d(channels, channels, (7, 1), (stride, 1), (3, 0), bias=False)
        return nn.Sequential(*_unit(wide, high, channels=channels))
    if kind.startswith("dil"):
        return _separable(int(kind[3:]), channels, stride, dilation=2, times=1)
    return _separable(int(kind[3:]), channels, stride)


class CellModule(nn.Module):
    """One cell, normal or halving the size."""

    def __init__(
        self, cell: Cell, before: tuple[int, int], channels: int, halves: bool, halved: bool
    ) -> None:
        super().__init__()
        edges = cell.reduction if halves else cell.normal
        self.joined = cell.reduction_joined if halves else cell.normal_joined
        self.sources = [source for _, source in edges]
        narrow = nn.Conv2d(before[0], channels, 1, bias=False)
        self.first = (
            Halved(before[0], channels, cell.pads)
            if halved
            else nn.Sequential(*_unit(narrow, channels=channels))
        )
        self.second = nn.Sequential(*_unit(nn.Conv2d(before[1], channels, 1, bias=False), channels=channels))
        self.edges = nn.ModuleList(
            _edge(kind, channels, 2 if halves and source < 2 else 1, cell.pads) for kind, source in edges
        )

    def forward(self, two_before: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        nodes = [self.first(two_before), self.second(before)]
        for number in range(0, len(self.edges), 2):
            one, other = (self.edges[at](nodes[self.sources[at]]) for at in (number, number + 1))
            nodes.append(one + other)
        return torch.cat([nodes[node] for node in self.joined], 1)


class CellNetwork(nn.Module):
    """A stem, `layers` cells that halve the size after one and two thirds, and a classifier."""

    def __init__(self, name: str, channels: int, layers: int) -> None:
        super().__init__()
        cell = CELLS[name]
        self.stem = nn.Sequential(nn.Conv2d(3, 3 * channels, 3, padding=1), nn.BatchNorm2d(3 * channels))
        before, halved = (3 * channels, 3 * channels), False
        self.cells = nn.ModuleList()
        for number in range(layers):
            halves = number in (layers // 3, 2 * layers // 3)
            channels *= 2 if halves else 1
            self.cells.append(CellModule(cell, before, channels, halves, halved))
            joined = cell.reduction_joined if halves else cell.normal_joined
            before, halved = (before[1], channels * len(joined)), halves
        self.classifier = nn.Linear(before[1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        two_before = before = self.stem(x)
        for cell in self.cells:
            two_before, before = before, cell(two_before, before)
        scores: torch.Tensor = self.classifier(before.mean((2, 3)))
        return scores


class RandomStage(nn.Module):
    """Nodes wired at random: each adds up what it reads, weighted, and convolves it."""

    def __init__(self, seed: int, nodes: int, before: int, channels: int) -> None:
        super().__init__()
        draw, near = Random(seed), 2
        pairs = set()
        for node in range(nodes):
            for step in range(1, near + 1):
                other = (node + step) % nodes
                if draw.random() < 0.75:
                    other = draw.choice([each for each in range(nodes) if each != node])
                pairs.add((min(node, other), max(node, other)))
        self.reads = [sorted(one for one, other in pairs if other == node) for node in range(nodes)]
        read = {one for one, _ in pairs}
        self.last = [node for node in range(nodes) if node not in read]
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(len(reads))) for reads in self.reads)
        self.nodes = nn.ModuleList()
        for reads in self.reads:
            width, stride = (channels, 1) if reads else (before, 2)
            depth = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
            self.nodes.append(
                nn.Sequential(*_unit(depth, nn.Conv2d(width, channels, 1, bias=False), channels=channels))
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: list[torch.Tensor] = []
        for reads, weights, node in zip(self.reads, self.weights, self.nodes, strict=True):
            parts = [made[read] * weights[place].sigmoid() for place, read in enumerate(reads)]
            made.append(node(sum(parts[1:], parts[0]) if parts else x))
        ends = [made[node] for node in self.last]
        return sum(ends[1:], ends[0]) / len(ends)


class RandWire(nn.Module):
    """Three stages wired at random behind a stem."""

    def __init__(self, seed: int, nodes: int = 32, channels: int = 78) -> None:
        super().__init__()
        half = channels // 2
        self.stem = nn.Sequential(
            nn.Conv2d(3, half, 3, 2, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            nn.Conv2d(half, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        widths = [channels, channels, 2 * channels, 4 * channels]
        self.stages = nn.Sequential(
            *(
                RandomStage(10 * seed + number, nodes, widths[number], widths[number + 1])
                for number in range(3)
            )
        )
        self.classifier = nn.Linear(widths[-1], 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.stages(self.stem(x)).mean((2, 3)))
        return scores


def networks() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """By name, each network in eval mode with an image, both without contents."""
    with torch.device("meta"):
        small, large = torch.empty(1, 3, 32, 32), torch.empty(1, 3, 224, 224)
        made: dict[str, tuple[nn.Module, torch.Tensor]] = {}
        for name in CELLS:
            made[f"{name} cifar"] = (CellNetwork(name, 36, 20).eval(), small)
            made[f"{name} 112px"] = (CellNetwork(name, 48, 14).eval(), torch.empty(1, 3, 112, 112))
        for seed in range(3):
            made[f"randwire {seed}"] = (RandWire(seed).eval(), large)
    return made
