"""Whether two runs that add up in another order give the same but for the last digits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

SHARE = 1e-3
"""Of the length of a tensor, which a difference may have."""
FLOOR = 1e-5
"""Of the largest number in tensors of its kind: what is smaller is what rounding leaves of zero."""
_MOMENT = ".exp_avg"


def far_off(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str:
    """The first result that differs by more than its last digits; "" where none does.

    A tensor may differ by a thousandth of its length (2-norm), and each element by a hundred-thousandth of
    the largest number in all tensors whose names end alike. Where an optimizer divides by the root of what
    it averages, rounding decides which way a parameter goes whose gradient is rounding alone: that average
    stands for such a parameter.
    """
    largest: dict[str, float] = {}
    for name, tensor in _numbers(expected):
        kind = _kind(name)
        largest[kind] = max(largest.get(kind, 0.0), float(tensor.abs().max()) if tensor.numel() else 0.0)
    if expected.keys() != actual.keys():
        return min(expected.keys() ^ actual.keys())
    for name, tensor in _numbers(expected):
        other = actual[name]
        if not isinstance(other, torch.Tensor) or other.shape != tensor.shape:
            return name
        if _averaged(name) in expected:
            continue
        difference = (tensor - other.detach().to(tensor)).nan_to_num(nan=float("inf"))
        both = tensor.isnan() & other.isnan()
        length = float(difference.masked_fill(both, 0.0).norm())
        floor = FLOOR * largest[_kind(name)] * tensor.numel() ** 0.5
        if length > SHARE * float(tensor.nan_to_num().norm()) + floor:
            return name
    plain = {name for name, value in expected.items() if not isinstance(value, torch.Tensor)}
    return next((name for name in sorted(plain) if expected[name] != actual[name]), "")


def _numbers(values: Mapping[str, Any]) -> Iterable[tuple[str, torch.Tensor]]:
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            yield name, value.detach().to(torch.complex128 if value.is_complex() else torch.float64)


def _kind(name: str) -> str:
    """ "weight.exp_avg after the step" → ".exp_avg"; a gradient and a parameter are kinds of their own."""
    if name.startswith("the gradient of"):
        return "gradient"
    return (
        name.removesuffix(" after the step").rpartition(".")[2] if name.endswith(" after the step") else name
    )


def _averaged(name: str) -> str:
    """What the average of the gradients of a parameter is called."""
    return name.removesuffix(" after the step") + f"{_MOMENT} after the step"
