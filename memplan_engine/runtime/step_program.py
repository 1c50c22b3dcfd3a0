"""A whole training step (forward, backward, optimizer) with real weights, made ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.runtime.program import Program, program_from_module
from memplan_engine.torch_capture.torch_fake import tensors_of
from memplan_engine.torch_capture.training.torch_recipe import Loss, Recipe, Step
from memplan_engine.torch_capture.training.torch_step import (
    Argument,
    Gradients,
    StepModule,
    step_graph,
    trace_step,
)
from memplan_engine.torch_capture.training.torch_trainer import attribute_at


def load_step(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: Any = "sgd",
    gradients: str = Gradients.HELD,
    loss: Loss | None = None,
    accumulate: int = 1,
    clip_grad_norm: float | None = None,
    foreach: bool | None = None,
    step: Step | None = None,
    functional: bool = False,
    name: str | None = None,
) -> Program:
    """One training step of `model` as a Program; its graph is the one that `capture_step` gives.

    A run takes the tensors among the leaves of `args` and `kwargs`, in order, as flat positional arguments,
    updates the model's own parameters and buffers, and returns the flat list of the loss (of what a step of
    your own returns) and, with `gradients` "held", the gradients. The step is the second one; the optimizer's
    state, which the first one makes, is zero unless it is copied in, and is kept in `Program.state`.

    Raises
    ------
    InputError: as `capture_step` does; weights that are not real.
    """
    recipe = Recipe(optimizer, loss, accumulate, clip_grad_norm, foreach, step)
    traced = trace_step(model, args, kwargs, recipe, gradients=gradients, functional=functional, name=name)
    return program_of_step(traced, model, args, kwargs)


def program_of_step(
    step: StepModule, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Program:
    """The Program of a traced step of `model`. Raises InputError for weights that are not real."""
    tensors = tensors_of((tuple(args), dict(kwargs or {})))
    kept = [each for each in step.arguments if each.kept]
    state = [_content(model, each, step.source) for each in kept]
    return program_from_module(
        step.module,
        [*state, *tensors],
        state=len(state),
        name=step.source,
        graph=step_graph(step),
        state_names=tuple(each.path for each in kept),
    )


def _content(model: torch.nn.Module, argument: Argument, source: str) -> torch.Tensor:
    """The real tensor for an argument that is kept between steps."""
    if argument.constant is not None:
        return argument.constant.detach().clone()
    if argument.state is not None:
        value = argument.value
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).zero_()
    tensor = attribute_at(model, argument.paths[0])
    if tensor is None:
        found = "one that the first step makes"
        raise InputError(source, f"weight {argument.paths[0]!r}", found, "one that the model has before it")
    if tensor.is_meta or hasattr(tensor, "fake_mode"):
        raise InputError(source, f"weight {argument.name!r}", "a tensor without values", "a real tensor")
    return tensor.detach()  # type: ignore[no-any-return]
