"""One real run of a model, or one training step, as eager PyTorch takes it, under the observer: of whatever
runs, whether it can be exported or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.importers.torch_caches import as_given, register_caches
from memplan_engine.importers.torch_loss import find_loss
from memplan_engine.importers.torch_run import brief
from memplan_engine.importers.torch_source import located
from memplan_engine.recordings.observation import Observation
from memplan_engine.runtime.observer import Observer

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
LEARNING_RATE = 1e-3
"""That of captured steps (`torch_optimizers`); memory does not depend on it."""


def observe_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    optimizer: str | None = None,
    name: str | None = None,
) -> Observation:
    """Run `model(*args, **kwargs)` once without gradients, observed at both levels with the lines of Python;
    with `optimizer` ("sgd", "adam", "adamw", torch's own) a training step instead: forward, backward, update.

    Of training the second step is observed: the first one makes what the optimizer keeps. There are no
    gradients before it, and they live to its end. The weights are those that the steps leave behind.

    Raises
    ------
    InputError: an unknown optimizer, a model without a loss, a profiler that is running already, and whatever
        the model itself raises, with its line.
    """
    label = name or type(model).__name__
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise InputError(label, "optimizer", repr(optimizer), f"one of {', '.join(OPTIMIZERS)}")
    register_caches()
    args, kwargs = as_given((tuple(args), dict(kwargs or {})))
    there = [*model.parameters(), *model.buffers(), *pytree.tree_leaves((args, kwargs))]
    try:
        if optimizer is None:
            return _observed(lambda: model(*args, **kwargs), there, label, gradients=False)
        update = OPTIMIZERS[optimizer](model.parameters(), lr=LEARNING_RATE)

        def step() -> Any:
            places, names = as_given((args, kwargs))
            loss = find_loss(model(*places, **names), None, label)
            loss.backward()  # type: ignore[no-untyped-call]
            update.step()
            return loss

        with torch.enable_grad():
            step()
        update.zero_grad()
        there += pytree.tree_leaves(list(update.state.values()))
        return _observed(step, there, label, gradients=True)
    except MemplanError:
        raise
    except Exception as error:
        expected = "a model that runs on these inputs"
        raise InputError(label, "run", located(brief(error), error), expected) from error


def _observed(call: Callable[[], Any], there: Sequence[Any], name: str, gradients: bool) -> Observation:
    """What `call()` allocates beside the tensors among `there`; what it gives is held to the end."""
    observer = Observer(stacks=True, name=name)
    observer.given([one for one in there if isinstance(one, torch.Tensor)])
    with torch.set_grad_enabled(gradients), observer:
        result = call()
    del result
    return observer.observation
