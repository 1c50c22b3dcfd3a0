"""What an operator made of other operators holds meanwhile: storages that it does not return.

`layer_norm` calls `native_layer_norm`, whose mean and deviation it drops; `scaled_dot_product_attention`
drops its logarithms; `gru` makes every gate of every step. They live while it runs, beside its inputs and
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memplan_engine.importers.torch_kernels import as_on_cpu
from memplan_engine.runtime.storages import OperatorMode, StorageSizes

OTHERWISE_FAKE = ("aten.one_hot",)
"""Ops made of others on fake tensors than on real ones, where they hold nothing beside their result."""


class Inside(OperatorMode):  # type: ignore[no-untyped-call]
    """Watches every operator below one call on fake tensors; sums up the storages that they give back."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes, self._most = StorageSizes(), 0

    def watch(self, kind: str, call: Callable[[], Any], given: Any) -> tuple[Any, int]:
        """What `call`, the op of this kind on the arguments `given`, gives, and the bytes that it holds at
        its fullest moment beside its arguments and results. A storage whose size depends on the data counts
        0."""
        self._sizes, self._most = StorageSizes(), 0
        self._sizes.given(given)
        with self:
            value = call()
        held = self._most - self._sizes.nbytes
        self._sizes.close()
        return value, 0 if kind in OTHERWISE_FAKE else held

    def operate(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call it, in storages as CPU kernels make them."""
        value = as_on_cpu(operator, operator(*args, **kwargs), args, kwargs)
        self._sizes.returned(value, args, kwargs, operator)
        self._most = max(self._most, self._sizes.nbytes)
        return value
