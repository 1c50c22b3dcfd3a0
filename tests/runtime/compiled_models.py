"""Small models for the backend of torch.compile, and steps of them that are held against eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from memplan_engine import CompiledGraph, memplan_backend, observe
from memplan_engine.recordings.observation import Level, observed_peak

Build = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


class Pictures(nn.Module):
    """Batch norm in train mode, a ReLU in place, dropout, and operators that have decompositions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(functional.relu(self.norm(self.conv(x)), inplace=True), 0.1, self.training)
        x = functional.interpolate(x, scale_factor=2, mode="bilinear")
        rows = self.head(x.flatten(2).transpose(1, 2))
        return rows.matmul(torch.ones(5, 3)).log_softmax(-1)


class Words(nn.Module):
    """Integer inputs, attention, dropout with a probability that no binary fraction is, and tied weights."""

    def __init__(self, layers: int = 2, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(23, width)
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, 23, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for mix, norm in zip(self.mix, self.norms, strict=True):
            q, k, v = mix(norm(x)).chunk(3, -1)
            x = x + functional.dropout(functional.scaled_dot_product_attention(q, k, v), 0.3, self.training)
        return self.head(functional.gelu(x))


class Views(nn.Module):
    """Results that are views of one another, of an input, and of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.inner(x)
        return y.exp(), y.t(), x[:2], self.inner.weight.view(-1), y.sigmoid()[1:]


class Deep(nn.Module):
    """A chain of layers that all save something."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(functional.softplus(layer(x)).sin())
        return x


class Drawn(nn.Module):
    """Random numbers of several kinds, in tensors whose strides are not those of their shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.dropout(self.inner(x).transpose(0, 1), 0.3, True)
        y = functional.gumbel_softmax(y, dim=0) + functional.alpha_dropout(y, 0.3, True)
        return y * torch.rand_like(y) + functional.dropout1d(x, 0.4, True).t()


MODELS: dict[str, Build] = {
    "pictures": lambda: (Pictures(), (torch.randn(2, 3, 8, 8),)),
    "words": lambda: (Words(), (torch.randint(23, (3, 7)),)),
    "drawn": lambda: (Drawn(), (torch.randn(9, 6),)),
    "views": lambda: (Views(), (torch.randn(4, 6),)),
    "deep": lambda: (Deep(), (torch.randn(64, 32),)),
}


def built(name: str) -> tuple[Any, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return MODELS[name]()


def compiled_twin(model: nn.Module, **options: Any) -> tuple[Any, Callable[..., Any], list[CompiledGraph]]:
    """A copy of `model`, the same compiled, and the list in which reports arrive."""
    torch._dynamo.reset()
    twin = copy.deepcopy(model)
    reports: list[CompiledGraph] = []
    options = {**options, "on_report": reports.append}
    return twin, torch.compile(twin, backend=memplan_backend, dynamic=False, options=options), reports


def first(value: Any) -> torch.Tensor:
    """The scalar that a step goes back from: of all results that follow from weights."""
    parts = value if isinstance(value, tuple) else (value,)
    return torch.stack([part.square().mean() for part in parts if part.requires_grad]).sum()


def steps(model: nn.Module, call: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    """What two training steps give: results, gradients, then weights and buffers."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    seen: list[Any] = []
    for _ in range(2):
        result = call(*inputs)
        first(result).backward()
        seen += [result, [parameter.grad.clone() for parameter in model.parameters()]]
        optimizer.step()
        optimizer.zero_grad()
    return [*seen, list(model.state_dict().values())]


def same(left: Any, right: Any) -> bool:
    """Whether both are the same, bit for bit, in tensors of the same form."""
    if isinstance(left, torch.Tensor):
        return left.stride() == right.stride() and left.dtype == right.dtype and torch.equal(left, right)
    return len(left) == len(right) and all(map(same, left, right))


def measured_peak(model: nn.Module, run: Callable[[], Any]) -> int:
    """The most live bytes of storages in a real run of `run`, which begins without gradients."""
    for parameter in model.parameters():
        parameter.grad = None
    return observed_peak(observe(run, levels=[Level.DISPATCH]), Level.DISPATCH)[0]
