"""What an operator made of other operators holds meanwhile: storages that it does not return.

`layer_norm` calls `native_layer_norm`, whose mean and deviation it drops; `scaled_dot_product_attention`
drops its logarithms; `gru` makes every gate of every step. They live while it runs, beside its inputs and
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from memplan_engine.torch_capture.torch_kernels import as_on_cpu
from memplan_engine.torch_capture.torch_storages import OperatorMode, StorageSizes

OTHERWISE_FAKE = ("aten.one_hot",)
"""Ops made of others on fake tensors than on real ones, where they hold nothing beside their result."""


class Inside(OperatorMode):  # type: ignore[no-untyped-call]
    """Watches every operator below one call on fake tensors; sums up the storages that they give back."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes = StorageSizes()
        self._moments: list[int | torch.SymInt] = []

    def watch(
        self, kind: str, call: Callable[[], Any], given: Any
    ) -> tuple[Any, tuple[int | torch.SymInt, ...]]:
        """What `call`, the op of this kind on the arguments `given`, gives, and the bytes that it holds
        beside its arguments and results at each moment that may be its fullest: one number, then formulas."""
        self._sizes, self._moments = StorageSizes(), []
        self._sizes.given(given)
        with self:
            value = call()
        end = self._sizes.nbytes
        self._sizes.close()
        held = [moment - end for moment in self._moments] if kind not in OTHERWISE_FAKE else []
        most = max((nbytes for nbytes in held if isinstance(nbytes, int)), default=0)
        return value, (most, *(nbytes for nbytes in held if not isinstance(nbytes, int)))

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call it, in storages as CPU kernels make them."""
        value = as_on_cpu(operator, operator(*args, **kwargs), args, kwargs)
        self._sizes.returned(value, args, kwargs, operator)
        self._moments.append(self._sizes.nbytes)
        return value
