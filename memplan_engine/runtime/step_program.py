"""A whole training step (forward, gradients, optimizer) with real weights, made ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError
from memplan_engine.importers.torch_loss import Loss
from memplan_engine.importers.torch_optimizers import Optimizer, find_optimizer
from memplan_engine.importers.torch_step import Gradients, StepModule, step_graph, trace_step
from memplan_engine.importers.torch_trainee import make_trainee
from memplan_engine.runtime.program import Program, program_from_module

if TYPE_CHECKING:
    from torch.fx import GraphModule


def load_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str | Optimizer = "sgd",
    gradients: str = Gradients.HELD,
    loss: Loss | None = None,
    functional: bool = False,
    name: str | None = None,
) -> Program:
    """One training step of `model` as a Program; its graph is the one that `capture_step` gives.

    A run takes the tensors among the leaves of `args` and `kwargs`, in order, as flat positional arguments,
    updates the model's own parameters and buffers, and returns the flat list of the loss and, with
    `gradients` "held", the gradients. The optimizer's state starts at zero and is kept in `Program.state`.

    Raises
    ------
    InputError: as `capture_step` does; weights that are not real.
    """
    trainee = make_trainee(model, args, kwargs, loss, name)
    step = trace_step(
        trainee, find_optimizer(optimizer, trainee.source), gradients=gradients, functional=functional
    )
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    state = _state(model, trainee.module, step)
    rows = zip(step.names, step.kept, step.paths, strict=True)
    return program_from_module(
        step.module,
        [*state, *tensors],
        state=len(state),
        name=step.source,
        graph=step_graph(step),
        state_names=tuple(paths[0] if paths else name for name, kept, paths in rows if kept),
    )


def _state(model: torch.nn.Module, module: GraphModule, step: StepModule) -> list[torch.Tensor]:
    """The real tensor for each placeholder that is kept between steps."""
    found: list[torch.Tensor] = []
    for name, value, kept, paths in zip(step.names, step.values, step.kept, step.paths, strict=True):
        if not kept:
            continue
        if not paths:
            found.append(torch.zeros(tuple(value.shape), dtype=value.dtype, device=value.device))
            continue
        tensor = _attribute(model, paths[0])
        tensor = _attribute(module, paths[0]) if tensor is None else tensor
        if tensor is None or tensor.is_meta or hasattr(tensor, "fake_mode"):
            raise InputError(step.source, f"weight {name!r}", "a tensor without values", "a real tensor")
        found.append(tensor.detach())
    return found


def _attribute(module: Any, path: str) -> torch.Tensor | None:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module if isinstance(module, torch.Tensor) else None
