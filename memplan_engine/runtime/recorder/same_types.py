"""Operators whose tensors must be of one type: kernels refuse others, of which shapes say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

OF_ONE_TYPE: dict[str, tuple[int, ...]] = {
    "aten::mm": (0, 1),
    "aten::mv": (0, 1),
    "aten::addmm": (0, 1, 2),
    "aten::addmm_": (0, 1, 2),
    "aten::convolution": (0, 1, 2),
    "aten::index_add": (0, 3),
    "aten::index_add_": (0, 3),
    "aten::index_put": (0, 2),
    "aten::index_put_": (0, 2),
}
"""By the operator the places of these tensors among its arguments."""


def check_types(places: Sequence[int], operator: Any, args: Sequence[Any]) -> None:
    """Raise RuntimeError, as its kernel does, where the tensors of `operator` at `places` are of several
    types."""
    given = [args[place] for place in places if place < len(args)]
    # A single number that is put somewhere may be cast.
    types = [tensor.dtype for tensor in given if isinstance(tensor, torch.Tensor) and tensor.numel() != 1]
    if any(kind is not types[0] for kind in types):
        names = ", ".join(str(kind).removeprefix("torch.") for kind in types)
        raise RuntimeError(f"{operator}: expected tensors of the same dtype, but got {names}")
