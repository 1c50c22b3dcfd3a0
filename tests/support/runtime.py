"""Small models and comparisons for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree


def same_bits(one: Any, other: Any) -> bool:
    """Whether both hold the same: tensors equal bit for bit, laid out alike, everything else equal."""
    ones, others = pytree.tree_leaves(one), pytree.tree_leaves(other)
    return len(ones) == len(others) and all(map(_same, ones, others))


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    alike = one.shape == other.shape and one.dtype == other.dtype and one.stride() == other.stride()
    return alike and torch.equal(raw(one), raw(other))


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, row by row: NaN equals NaN, and 0 is not -0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Blocks(nn.Module):
    """Linear layers, a norm, views, an in-place op, two outputs, one of them seen through a view as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 16), nn.Linear(16, 32), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.norm(self.first(x)).relu()
        left, right = self.second(hidden).chunk(2, -1)
        mixed = (left * right).add_(x)
        total = mixed.softmax(-1) + hidden
        return {"total": total, "part": total[:, 2:5], "mean": hidden.mean() + torch.zeros_like(x)}


class Pixels(nn.Module):
    """Convolutions with batch norm, in channels-last layout from the first one on, padding and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.convolution(image)))
        x = functional.max_pool2d(functional.pad(x, (0, 1, 0, 1)), 2)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Calls(nn.Module):
    """Whatever `function` does with a linear layer and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(16, 16), function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self.linear, *args)


class Counts(nn.Module):
    """Writes into a buffer and into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, Any]:
        self.calls.add_(1)  # type: ignore[operator]
        x.mul_(2)
        return {"y": self.linear(x) * scale, "calls": self.calls, "none": None, "three": 3}
