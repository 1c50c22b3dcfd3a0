"""Fake tensors whose shapes are worked out once for each call of an operator: a model of like layers calls
few different ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._ops import _higher_order_ops
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, _BypassDispatchCache

BY_FLAGS = ("aten::convolution", "aten::convolution_backward", "aten::_fused_sdp_choice")
"""What these give hangs on settings of backends, too, which may change within a run."""


class _CachedFakes(FakeTensorMode):
    """torch's cache, but for what it would give another storage the second time: it keeps the form of a
    tensor, not how large a storage was that only a part of is shown of (a copy of a slice)."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Have Dynamo take functions apart under this mode, as it does without any."""
        return True

    def _validate_cache_key(self, func: Any, args: Any, kwargs: Any) -> None:
        if func.name().partition(".")[0] in BY_FLAGS:
            raise _BypassDispatchCache("set by flags")
        super()._validate_cache_key(func, args, kwargs)  # type: ignore[no-untyped-call]

    def _get_output_info_for_cache_entry(
        self, state: Any, key: Any, func: Any, args: Any, kwargs: Any, output: Any
    ) -> Any:
        if not isinstance(output, FakeTensor):
            raise _BypassDispatchCache("no tensor")
        is_given = any(output is each for each in args)
        if not is_given and not func.is_view and not _is_whole(output):
            raise _BypassDispatchCache("part of a storage")
        return super()._get_output_info_for_cache_entry(state, key, func, args, kwargs, output)


def _is_whole(tensor: FakeTensor) -> bool:
    """Whether `tensor` shows all of its storage, as one of its shape and strides that is made anew does."""
    if not tensor.numel():
        return tensor.untyped_storage().nbytes() == 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    nbytes = tensor.untyped_storage().nbytes()
    return tensor.storage_offset() == 0 and nbytes == reach * tensor.element_size()


@contextmanager
def cached_fakes() -> Iterator[FakeTensorMode]:
    """A mode as `fake_mode(unknown_sizes=False)` gives, with the cache, which is torch's one for all modes:
    nothing that was worked out elsewhere is in it, and nothing stays."""
    for operator in _higher_order_ops.values():
        # Found by the exact type of a mode.
        if FakeTensorMode in operator.python_key_table:
            operator.python_key_table[_CachedFakes] = operator.python_key_table[FakeTensorMode]
    mode = _CachedFakes(shape_env=None, static_shapes=True, allow_non_fake_inputs=True)
    FakeTensorMode.cache_clear()
    try:
        yield mode
    finally:
        FakeTensorMode.cache_clear()
