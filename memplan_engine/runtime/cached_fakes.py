"""Fake tensors whose shapes are worked out once for each call of an operator: a model of like layers calls
few different ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    _DISPATCH_HANDLE_DIRECTLY,
    _DISPATCH_META_HANDLERS,
    FakeTensor,
    FakeTensorMode,
    _BypassDispatchCache,
    in_kernel_invocation_manager,
)

BY_FLAGS = ("aten::convolution", "aten::convolution_backward", "aten::_fused_sdp_choice")
"""What these give hangs on settings of backends, too, which may change within a run."""
STRIDED = torch.strided
PLAIN = frozenset(
    (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
"""What stands for itself in a key, beside its type: 1 and 1.0 are equal, and give other dtypes."""


def _unwrapped(method: Any) -> Any:
    """`method` without what torch wraps those of its modes in, to keep the compiler out."""
    return getattr(method, "__wrapped__", method)


class _CachedFakes(FakeTensorMode):
    """torch's cache, but for what it would give another storage the second time: it keeps the form of a
    tensor, not how large a storage was that only a part of is shown of (a copy of a slice).

    A run is nearly all look-ups, so these take a short way to the keys and tensors that torch would make.
    """

    def __init__(self) -> None:
        super().__init__(shape_env=None, static_shapes=True, allow_non_fake_inputs=True)
        self._fresh: dict[torch.device, dict[str, Any]] = {}
        """What torch has written on a fake tensor that it had just made, by device."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # In a fake run nothing is compiled, and to say so to the compiler takes longer than many an op.
        return False

    __torch_dispatch__ = _unwrapped(FakeTensorMode.__torch_dispatch__)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DISPATCH_META_HANDLERS or func in _DISPATCH_HANDLE_DIRECTLY:
            return super().dispatch(func, types, args, kwargs or {})
        return self._cached_dispatch_impl(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    def _get_output_tensor_from_cache_entry(
        self, state: Any, entry: Any, key: Any, func: Any, args: Any
    ) -> Any:
        form = entry.metadata
        if form is None or form.device not in self._fresh or form.is_conj or form.is_neg:
            made = super()._get_output_tensor_from_cache_entry(state, entry, key, func, args)
            if type(made) is FakeTensor and entry.inplace_idx is None:
                self._fresh[made._fake_device] = dict(made.__dict__)
            return made
        shape, stride, device = form.shape, form.stride, form.device
        with in_kernel_invocation_manager(self):
            bare = torch.empty_strided(
                shape, stride, dtype=form.dtype, device="meta", requires_grad=form.requires_grad
            )
            if getattr(func, "is_view", False):
                bare.set_(args[entry.view_idx].untyped_storage(), form.storage_offset, shape, stride)
        made = torch.Tensor._make_subclass(
            FakeTensor, bare, form.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        if self._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
        else:
            torch._C._set_throw_on_mutable_data_ptr(made)
        made.__dict__.update(self._fresh[device])
        return made

    def _prep_args_for_hash(self, result: Any, args: Any, state: Any, id_hashed_objects: Any) -> None:
        # As torch's, which takes each field of each tensor through a data class: a third of a fake run.
        if isinstance(args, dict):
            result += len(args), *args
            args = args.values()
        else:
            result.append(len(args))
        for each in args:
            kind = type(each)
            if kind is FakeTensor:
                if each.fake_mode is not self or each.constant is not None or each.layout is not STRIDED:
                    raise _BypassDispatchCache("another's, a constant, or sparse")
                result += (
                    *(FakeTensor, each.shape, each.stride(), each.storage_offset(), each.dtype),
                    *(each._fake_device, each.untyped_storage().nbytes(), each.requires_grad),
                    *(each.is_conj(), each.is_neg(), each.is_inference()),
                )
            elif kind in PLAIN:
                result += kind, each
            elif isinstance(each, (list, tuple)):
                result.append(kind)
                self._prep_args_for_hash(result, each, state, id_hashed_objects)
            else:
                super()._prep_args_for_hash(result, (each,), state, id_hashed_objects)

    def _validate_cache_key(self, func: Any, args: Any, kwargs: Any) -> None:
        if func.name().partition(".")[0] in BY_FLAGS:
            raise _BypassDispatchCache("set by flags")
        super()._validate_cache_key(func, args, kwargs)

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
    mode = _CachedFakes()
    FakeTensorMode.cache_clear()
    try:
        yield mode
    finally:
        FakeTensorMode.cache_clear()
