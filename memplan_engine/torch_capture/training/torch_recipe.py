"""How a model is trained: its loss, its optimizer, and what one step of a training loop does with them.

One function, `take_step`, is the step of everybody: what is traced on fake tensors and what is run eagerly to
compare with it are the same Python.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.torch_capture.capture_module import check_module
from memplan_engine.torch_capture.torch_fake import part_of_path

if TYPE_CHECKING:
    import torch

Step = Callable[..., Any]
Listen = Callable[[Any], None]
Loss = Callable[[Any], Any]
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
"""Names on the command line → classes of `torch.optim`, which are made with their own defaults."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training step does.

    `optimizer` is one of `OPTIMIZERS`, a function that makes a `torch.optim.Optimizer` of the parameters, or
    one that is made already, of the model's own parameters; a step of the user's own may have several, in a
    tuple, list or dict. `foreach` is the option of that name of an optimizer given by name; None leaves it to
    torch. `loss` makes a scalar of the model's output (see `find_loss`). The gradients of `accumulate` passes
    over the batch add up, each of the loss divided by their number; `clip_grad_norm` scales them to at most
    that norm. `step(model, optimizer, *args, **kwargs)` does all of this in a way of its own and returns the
    loss, or tensors in whatever form, or nothing: `loss`, `accumulate` and `clip_grad_norm` must then be left
    alone.
    """

    optimizer: Any = "sgd"
    loss: Loss | None = None
    accumulate: int = 1
    clip_grad_norm: float | None = None
    foreach: bool | None = None
    step: Step | None = None


def check_recipe(recipe: Recipe, source: str) -> None:
    """Raise InputError for an unknown optimizer, or options that make no sense together."""
    optimizer = recipe.optimizer
    named = isinstance(optimizer, str)
    if named and optimizer not in OPTIMIZERS:
        raise InputError(source, "optimizer", repr(optimizer), f"one of {', '.join(OPTIMIZERS)}")
    if not named and not callable(optimizer):
        expected = "a name, a function of the parameters, or a torch.optim.Optimizer"
        _check_optimizers(optimizer, recipe, source, f"a {type(optimizer).__name__}", expected)
    if recipe.foreach is not None and not named:
        raise InputError(source, "foreach", "an optimizer made elsewhere", "an optimizer given by name")
    if type(recipe.accumulate) is not int or recipe.accumulate < 1:
        raise InputError(source, "accumulate", repr(recipe.accumulate), "a whole number from 1 on")
    if recipe.clip_grad_norm is not None and not recipe.clip_grad_norm > 0:
        raise InputError(source, "clip_grad_norm", repr(recipe.clip_grad_norm), "a norm above 0")
    if recipe.step is not None and (recipe.loss, recipe.accumulate, recipe.clip_grad_norm) != (None, 1, None):
        raise InputError(source, "step", "loss, accumulate or clip_grad_norm, too", "all of it in the step")


def check_trainable(model: Any, source: str) -> None:
    """Raise InputError for what is no module, or has no parameter that requires a gradient."""
    check_module(model, source)
    check_made(model, source)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        found = f"{sum(1 for _ in model.parameters())}, none of which requires a gradient"
        raise InputError(source, "parameters", found, "at least one that does")


def check_made(model: torch.nn.Module, source: str) -> None:
    """Raise InputError for a parameter that has no size yet."""
    import torch

    lazy = [path for path, parameter in model.named_parameters() if torch.nn.parameter.is_lazy(parameter)]
    if lazy:
        expected = "weights that are made: call the model once where it is built"
        raise InputError(source, f"parameter {lazy[0]!r}", "one without a size (a lazy module)", expected)


def make_optimizer(
    recipe: Recipe, model: torch.nn.Module, source: str, twins: dict[int, Any] | None = None
) -> Any:
    """The optimizer of `recipe` for the parameters of `model`, or several in the form that it has them in.
    One that is made already is copied; `twins` gives, by id, what stands for each of its tensors in `model`,
    whose own they are without.

    Raises
    ------
    InputError: an optimizer that cannot be made of these parameters.
    """
    import torch

    chosen = recipe.optimizer
    if not isinstance(chosen, str) and not callable(chosen):
        own = {id(parameter): parameter for parameter in model.parameters()}
        return copy.deepcopy(chosen, own if twins is None else twins)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if isinstance(chosen, str):
        options: dict[str, Any] = {} if recipe.foreach is None else {"foreach": recipe.foreach}
        return getattr(torch.optim, OPTIMIZERS[chosen])(trained, **options)
    optimizer: Any = chosen(trained)
    _check_optimizers(
        optimizer, recipe, source, f"a function that gives a {type(optimizer).__name__}", "an Optimizer"
    )
    return optimizer


def _check_optimizers(optimizer: Any, recipe: Recipe, source: str, found: str, expected: str) -> None:
    from torch.optim import Optimizer
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(optimizer)
    if not leaves or not all(isinstance(leaf, Optimizer) for leaf in leaves):
        raise InputError(source, "optimizer", found, expected)
    if recipe.step is None and not isinstance(optimizer, Optimizer):
        raise InputError(source, "optimizer", f"{len(leaves)} of them", "one, or step=, a step of your own")


def optimizers_in(nested: Any) -> list[torch.optim.Optimizer]:
    """The optimizers in what `make_optimizer` gives."""
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(nested)


def kept_by_optimizers(nested: Any) -> Iterator[tuple[Any, str, torch.Tensor]]:
    """Every tensor that optimizers keep between steps: the parameter that it is kept for, None where it is
    kept for many, its key, `exp_avg` or `group_0.lr`, and the tensor; each tensor once."""
    import torch
    from torch.utils import _pytree as pytree

    seen: set[int] = set()
    optimizers = optimizers_in(nested)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    options = [
        (None, f"group_{index}.{key}", value)
        for index, group in enumerate(groups)
        for key, value in group.items()
        if key != "params"
    ]
    state = [
        (owner, "", value) if isinstance(owner, torch.Tensor) else (None, str(owner), value)
        for optimizer in optimizers
        for owner, value in optimizer.state.items()
    ]
    for owner, label, value in (*state, *options):
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor) and id(leaf) not in seen:
                seen.add(id(leaf))
                yield owner, ".".join([*([label] if label else []), *map(part_of_path, path)]), leaf


def find_loss(output: Any, loss: Loss | None, source: str) -> torch.Tensor:
    """The scalar to differentiate: `loss(output)` where the user gives a function, else `output.loss` or
    `output["loss"]` (HuggingFace models that were given labels), else a lone tensor, summed.

    Raises
    ------
    InputError: there is none of these, or it is no scalar, or no parameter has a part in it.
    """
    import torch

    if loss is not None:
        value, place = loss(output), "loss"
    else:
        value, place = _own_loss(output), "output"
        if isinstance(value, torch.Tensor) and value is output and value.dim():
            value = value.sum()
    if not isinstance(value, torch.Tensor):
        what = "output without a loss" if loss is None else "result"
        raise InputError(
            source,
            place,
            f"{_kind(value)} {what}",
            "output.loss (give labels), one tensor, or loss=, a function",
        )
    if value.dim():
        raise InputError(
            source, place, f"a loss of shape {tuple(value.shape)}", "a scalar: loss=, a function"
        )
    if not value.requires_grad:
        raise InputError(
            source,
            place,
            "a loss that no parameter has a part in",
            "one that can be differentiated; of torch.cond and other operators that take functions only a "
            "predicted run takes gradients (memplan observe --fake SCRIPT)",
        )
    return value


def _own_loss(output: Any) -> Any:
    import torch

    if isinstance(output, torch.Tensor):
        return output
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    return output if loss is None else loss


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def take_step(
    recipe: Recipe,
    model: torch.nn.Module,
    optimizer: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    source: str,
    listen: Listen = lambda output: None,
) -> dict[str, torch.Tensor]:
    """One step of training: forward, backward, optimizer. Gives the loss (the last one, where there are
    several passes), by a name for people; of a step of the user's own every tensor that it returns. `listen`
    hears what each call of the model returns, at once.

    Gradients are left where they are: in an eager loop they live until `zero_grad` before the next step.

    Raises
    ------
    InputError: an output without a loss, a loss that is no scalar or depends on no parameter.
    """
    import torch

    hook = model.register_forward_hook(lambda module, inputs, output: listen(output))
    try:
        with torch.enable_grad():
            if recipe.step is not None:
                return _named_tensors("the loss", recipe.step(model, optimizer, *args, **kwargs))
            for _ in range(recipe.accumulate):
                loss = find_loss(model(*args, **kwargs), recipe.loss, source)
                (loss if recipe.accumulate == 1 else loss / recipe.accumulate).backward()  # type: ignore[no-untyped-call]
            if recipe.clip_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_grad_norm)
            optimizer.step()
            return {"the loss": loss}
    finally:
        hook.remove()


def _named_tensors(label: str, value: Any) -> dict[str, torch.Tensor]:
    """The tensors in `value`, each by `label` and where it stands; those within a transform of torch.func
    are none outside of it."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_flatten_with_path(value)[0]
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return {
        f"{label}{pytree.keystr(path)}": leaf
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor) and not wrapped(leaf)
    }


def named_outputs(output: Any, passes: int) -> dict[str, torch.Tensor]:
    """The tensors that a model returned in pass `passes` (from 1) of a step, by the names under which a
    traced and a real step are compared."""
    return _named_tensors("output" if passes == 1 else f"output of pass {passes} ", output)


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
