"""What a model's output is differentiated from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any], Any]


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
            source, place, "a loss that no parameter has a part in", "one that can be differentiated"
        )
    return value


def _own_loss(output: Any) -> Any:
    import torch

    if isinstance(output, torch.Tensor):
        return output
    found = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    return output if found is None else found


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
