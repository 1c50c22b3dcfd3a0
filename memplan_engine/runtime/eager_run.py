"""One real run of a model, or one training step, as eager PyTorch takes it, under the observer: of whatever
runs, whether it can be exported or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.observer.observe_run import Observer
from memplan_engine.torch_capture.torch_caches import as_given, register_caches
from memplan_engine.torch_capture.torch_run import as_input_error
from memplan_engine.torch_capture.training.torch_recipe import (
    Recipe,
    check_recipe,
    drop_gradients,
    make_optimizer,
    take_step,
)


def observe_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    recipe: Recipe | None = None,
    name: str | None = None,
) -> Observation:
    """Run `model(*args, **kwargs)` once without gradients, observed at both levels with the lines of Python;
    with a `recipe` a training step instead: forward, backward, optimizer.

    Of training the second step is observed: the first one makes what the optimizer keeps. There are no
    gradients before it, and they live to its end. The weights are those that the steps leave behind.

    Raises
    ------
    InputError: a recipe that makes no sense, a model without a loss, a profiler that is running already, and
        whatever the model itself raises, with its line.
    """
    label = name or type(model).__name__
    register_caches()
    args, kwargs = as_given((tuple(args), dict(kwargs or {})))
    there = [*model.parameters(), *model.buffers(), *pytree.tree_leaves((args, kwargs))]
    with as_input_error(label, "run", "a model that runs on these inputs", lines=True):
        if recipe is None:
            return _observed(lambda: model(*args, **kwargs), there, label, gradients=False)
        check_recipe(recipe, label)
        optimizer = make_optimizer(recipe, model, label)

        def step() -> Any:
            places, names = as_given((args, kwargs))
            return take_step(recipe, model, optimizer, places, names, label)

        step()
        drop_gradients(model)
        there += pytree.tree_leaves(list(optimizer.state.values()))
        return _observed(step, there, label, gradients=True)


def _observed(call: Callable[[], Any], there: Sequence[Any], name: str, gradients: bool) -> Observation:
    """What `call()` allocates beside the tensors among `there`; what it gives is held to the end."""
    observer = Observer(stacks=True, name=name)
    observer.given(there)
    with torch.set_grad_enabled(gradients), observer:
        result = call()
    del result
    return observer.observation
