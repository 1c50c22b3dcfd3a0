"""What one step of an optimizer does to one parameter: the in-place ops of `torch.optim`'s plain loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memplan_engine.errors import InputError

if TYPE_CHECKING:
    import torch


class Optimizer(Protocol):
    """How a parameter is updated."""

    @property
    def state(self) -> tuple[str, ...]:
        """Names of the tensors kept for each parameter, each of the parameter's shape."""

    def update(self, parameter: torch.Tensor, gradient: torch.Tensor, state: list[torch.Tensor]) -> None:
        """Change `parameter` and its `state` in place."""


@dataclass(frozen=True, slots=True)
class Sgd:
    """Stochastic gradient descent as `torch.optim.SGD(foreach=False)` computes it; `momentum` keeps one
    tensor for each parameter."""

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def state(self) -> tuple[str, ...]:
        """The momentum, where there is one."""
        return ("momentum_buffer",) if self.momentum else ()

    def update(self, parameter: torch.Tensor, gradient: torch.Tensor, state: list[torch.Tensor]) -> None:
        """One step, not the first: that one only copies the gradient into the momentum."""
        if self.weight_decay:
            gradient = gradient.add(parameter, alpha=self.weight_decay)
        if self.momentum:
            gradient = state[0].mul_(self.momentum).add_(gradient, alpha=1)
        parameter.add_(gradient, alpha=-self.lr)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba, 2015) as `torch.optim.Adam(foreach=False)` computes it; with `decoupled` weight
    decay AdamW (Loshchilov and Hutter, 2019). Two tensors are kept for each parameter."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    @property
    def state(self) -> tuple[str, ...]:
        """The running means of the gradient and of its square."""
        return ("exp_avg", "exp_avg_sq")

    def update(self, parameter: torch.Tensor, gradient: torch.Tensor, state: list[torch.Tensor]) -> None:
        """The first step; a later one differs in two numbers and in no memory."""
        mean, square = state
        if self.weight_decay and self.decoupled:
            parameter.mul_(1 - self.lr * self.weight_decay)
        elif self.weight_decay:
            gradient = gradient.add(parameter, alpha=self.weight_decay)
        mean.lerp_(gradient, 1 - self.betas[0])
        square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        size = self.lr / (1 - self.betas[0])
        below = (square.sqrt() / (1 - self.betas[1]) ** 0.5).add_(self.eps)
        parameter.addcdiv_(mean, below, value=-size)


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(),
    "adam": Adam(),
    "adamw": Adam(weight_decay=0.01, decoupled=True),
}


def find_optimizer(optimizer: str | Optimizer, source: str) -> Optimizer:
    """The optimizer called so, or `optimizer` itself; raises InputError when there is none."""
    if not isinstance(optimizer, str):
        return optimizer
    if optimizer not in OPTIMIZERS:
        raise InputError(source, "optimizer", repr(optimizer), f"one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[optimizer]
