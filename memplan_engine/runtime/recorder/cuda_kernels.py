"""What kernels of CUDA give where fake tensors say something else; in `eager_kernels.KERNELS` by name.

Attention is chosen by `cuda_guard.cpp`; what each kernel gives are torch's own fake results, but for these.
Read in torch's sources (aten/src/ATen/native/transformers/cuda/attention.cu and flash_attn/flash_api.cpp);
tests/runtime/test_real_cuda.py holds them against a card where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from memplan_engine.torch_capture.torch_operators import arguments_of

CUDNN_ATTENTION = "_scaled_dot_product_cudnn_attention"
"""Gives output, logsumexp, two places of sequences, two lengths, seed, offset, mask."""
EFFICIENT_ATTENTION = "_scaled_dot_product_efficient_attention"
"""Gives output, logsumexp, seed, offset."""


def _cudnn_attention(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Unless asked for it the kernel makes no logsumexp."""
    operator = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    if arguments_of(operator, args, kwargs)["compute_log_sumexp"]:
        return value
    return (value[0], None, *value[2:])


def _efficient_attention(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Outside of a CUDA graph seed and offset lie on the host."""
    return (*value[:2], *(torch.empty((), dtype=torch.int64) for _ in range(2)))


CUDA_KERNELS: dict[str, Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]] = {
    f"aten::{CUDNN_ATTENTION}": _cudnn_attention,
    f"aten::{EFFICIENT_ATTENTION}": _efficient_attention,
}
