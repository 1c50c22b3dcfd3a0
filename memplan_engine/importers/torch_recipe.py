"""How a model is trained: its loss, its optimizer, and what one step of a training loop does with them.

One function, `take_step`, is the step of everybody: what is traced on fake tensors and what is run eagerly to
compare with it are the same Python.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.importers.torch_loss import Loss, find_loss

if TYPE_CHECKING:
    import torch

    MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    Step = Callable[..., Any]
    Listen = Callable[[Any], None]

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
"""Names on the command line → classes of `torch.optim`, which are made with their own defaults."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training step does.

    `optimizer` is one of `OPTIMIZERS`, a function that makes a `torch.optim.Optimizer` of the parameters, or
    one that is made already, of the model's own parameters. `foreach` is the option of that name of an
    optimizer given by name; None leaves it to torch. `loss` makes a scalar of the model's output (see
    `find_loss`). The gradients of `accumulate` passes over the batch add up, each of the loss divided by
    their number; `clip_grad_norm` scales them to at most that norm. `step(model, optimizer, *args, **kwargs)`
    does all of this in a way of its own and returns the loss: `loss`, `accumulate` and `clip_grad_norm` must
    then be left alone.
    """

    optimizer: str | MakeOptimizer | torch.optim.Optimizer = "sgd"
    loss: Loss | None = None
    accumulate: int = 1
    clip_grad_norm: float | None = None
    foreach: bool | None = None
    step: Step | None = None


def check_recipe(recipe: Recipe, source: str) -> None:
    """Raise InputError for an unknown optimizer, or options that make no sense together."""
    import torch

    chosen = recipe.optimizer
    named = isinstance(chosen, str)
    if named and chosen not in OPTIMIZERS:
        raise InputError(source, "optimizer", repr(chosen), f"one of {', '.join(OPTIMIZERS)}")
    if not named and not callable(chosen) and not isinstance(chosen, torch.optim.Optimizer):
        expected = "a name, a function of the parameters, or a torch.optim.Optimizer"
        raise InputError(source, "optimizer", f"a {type(chosen).__name__}", expected)
    if recipe.foreach is not None and not named:
        raise InputError(source, "foreach", "an optimizer made elsewhere", "an optimizer given by name")
    if type(recipe.accumulate) is not int or recipe.accumulate < 1:
        raise InputError(source, "accumulate", repr(recipe.accumulate), "a whole number from 1 on")
    if recipe.clip_grad_norm is not None and not recipe.clip_grad_norm > 0:
        raise InputError(source, "clip_grad_norm", repr(recipe.clip_grad_norm), "a norm above 0")
    if recipe.step is not None and (recipe.loss, recipe.accumulate, recipe.clip_grad_norm) != (None, 1, None):
        raise InputError(source, "step", "loss, accumulate or clip_grad_norm, too", "all of it in the step")


def make_optimizer(
    recipe: Recipe, model: torch.nn.Module, source: str, twins: dict[int, Any] | None = None
) -> torch.optim.Optimizer:
    """The optimizer of `recipe` for the parameters of `model`. One that is made already is copied; `twins`
    gives, by id, what stands for each of its tensors in `model`.

    Raises
    ------
    InputError: an optimizer that cannot be made of these parameters.
    """
    import torch

    chosen = recipe.optimizer
    if isinstance(chosen, torch.optim.Optimizer):
        return copy.deepcopy(chosen, twins or {})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if isinstance(chosen, str):
        options: dict[str, Any] = {} if recipe.foreach is None else {"foreach": recipe.foreach}
        made: Any = getattr(torch.optim, OPTIMIZERS[chosen])(trained, **options)
    else:
        made = chosen(trained)
    if not isinstance(made, torch.optim.Optimizer):
        raise InputError(
            source, "optimizer", f"a function that gives a {type(made).__name__}", "an Optimizer"
        )
    return made


def take_step(
    recipe: Recipe,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: str,
    listen: Listen = lambda output: None,
) -> torch.Tensor:
    """One step of training: forward, backward, optimizer. Gives the loss (the last one, where there are
    several); `listen` hears what each call of the model returns, at once.

    Gradients are left where they are: in an eager loop they live until `zero_grad` before the next step.

    Raises
    ------
    InputError: an output without a loss, a loss that is no scalar or depends on no parameter.
    """
    import torch

    hook = model.register_forward_hook(lambda module, given, output: listen(output))
    try:
        with torch.enable_grad():
            if recipe.step is not None:
                return _returned(recipe.step(model, optimizer, *args, **kwargs), source)
            for _ in range(recipe.accumulate):
                loss = find_loss(model(*args, **kwargs), recipe.loss, source)
                (loss if recipe.accumulate == 1 else loss / recipe.accumulate).backward()  # type: ignore[no-untyped-call]
            if recipe.clip_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_grad_norm)
            optimizer.step()
            return loss
    finally:
        hook.remove()


def _returned(loss: Any, source: str) -> torch.Tensor:
    """What a step of the user's own returns; it may be detached."""
    import torch

    if not isinstance(loss, torch.Tensor) or loss.dim():
        shape = f"of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
        raise InputError(
            source, "step", f"a {type(loss).__name__} {shape}".strip(), "the loss, a scalar tensor"
        )
    return loss


def named_outputs(output: Any, passes: int) -> dict[str, torch.Tensor]:
    """The tensors that a model returned in pass `passes` (from 1) of a step, by the names under which a
    traced and a real step are compared."""
    import torch
    from torch.utils import _pytree as pytree

    label = "output" if passes == 1 else f"output of pass {passes} "
    leaves = pytree.tree_flatten_with_path(output)[0]
    return {f"{label}{pytree.keystr(path)}": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def fresh_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """A batch of its own for a step, which may write its inputs and give them gradients."""
    return copy.deepcopy((list(args), dict(kwargs)))


def carry_hooks(parameter: torch.Tensor, twin: Any) -> None:
    """Give `twin` the hooks of `parameter`, which copies of tensors do not have."""
    before, after = "_backward_hooks", "_post_accumulate_grad_hooks"
    for hook in (getattr(parameter, before, None) or {}).values():
        twin.register_hook(hook)
    for hook in (getattr(parameter, after, None) or {}).values():
        twin.register_post_accumulate_grad_hook(hook)


def drop_gradients(model: torch.nn.Module) -> None:
    """What `zero_grad` does between two steps."""
    for parameter in model.parameters():
        parameter.grad = None


@contextmanager
def random_state(seed: int) -> Iterator[None]:
    """The generators of torch, Python and NumPy begin at `seed`; at the end they are as they were."""
    import numpy as np
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def storage_of(tensor: torch.Tensor) -> int:
    """What tells the storage of `tensor` from others."""
    return int(tensor.untyped_storage()._cdata)


def refuse_what_is_rebound(
    model: torch.nn.Module, found: Sequence[Any], before: Sequence[int], source: str
) -> None:
    """Raise InputError for a parameter or buffer that a step replaces by another tensor instead of writing
    it: `found` are the arguments of the step, `before` the storages that they had."""
    for argument, storage in zip(found, before, strict=True):
        for path in argument.paths:
            now: Any = model
            for part in path.split("."):
                now = getattr(now, part, None)
            if now is not argument.value or storage_of(now) != storage:
                expected = "one that is written in place (copy_), so that it lives on between steps"
                raise InputError(source, f"tensor {path!r}", "one that a step replaces by another", expected)
