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


def _grid_sampler(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return image.new_empty((*image.shape[:2], *grid.shape[1:3]))


def _grid_sampler_backward(
    image: torch.Tensor, grid: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(image), torch.empty_like(grid)


def _gru_cell(
    gates: torch.Tensor, hidden_gates: torch.Tensor, state: torch.Tensor, *biases: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next state, and five numbers an element of it for the gradient (GRU_WORKSPACE_MULTIPLIER)."""
    rows, width = state.shape
    return state.new_empty((rows, width)), state.new_empty((rows, 5 * width))


def _gru_cell_backward(gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> tuple[Any, ...]:
    """The gradients of both gates, three numbers an element, of the state, and of both biases."""
    rows, width = gradient.shape
    gates = [workspace.new_empty((rows, 3 * width)) for _ in range(2)]
    biases = [workspace.new_empty(3 * width) if has_bias else None for _ in range(2)]
    return (*gates, gradient.new_empty((rows, width)), *biases)


def _batch_norm_stats(image: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and inverse deviation of each channel, in the type that sums are kept in."""
    kind = torch.float64 if image.dtype is torch.float64 else torch.float32
    return image.new_empty(image.shape[1], dtype=kind), image.new_empty(image.shape[1], dtype=kind)


def _batch_norm_gathered(image: torch.Tensor, mean: torch.Tensor, *more: Any) -> tuple[torch.Tensor, ...]:
    """Those of all ranks, of which `mean` has a row each."""
    kind = torch.float32 if mean.dtype in (torch.float16, torch.bfloat16) else mean.dtype
    return tuple(mean.new_empty(mean.shape[1], dtype=kind) for _ in range(2))


def _batch_norm_elements(image: torch.Tensor, *more: Any) -> torch.Tensor:
    return torch.empty_like(image, memory_format=_format_of(image))


def _batch_norm_backward_sums(
    gradient: torch.Tensor,
    image: torch.Tensor,
    mean: torch.Tensor,
    deviation: torch.Tensor,
    weight: torch.Tensor | None,
    *asked: bool,
) -> tuple[Any, ...]:
    """Two sums for the gradient of the image, then the gradients of weight and bias; where channels come last
    all of them, asked for or not."""
    if _channels_last(gradient) and _channels_last(image):
        asked = True, weight is not None, weight is not None
    of_image, of_weight, of_bias = asked
    kept = mean if weight is None else weight
    sums = [torch.empty_like(mean) if of_image else None for _ in range(2)]
    return (*sums, *(kept.new_empty(image.shape[1]) if each else None for each in (of_weight, of_bias)))


def _batch_norm_backward_elements(gradient: torch.Tensor, image: torch.Tensor, *more: Any) -> torch.Tensor:
    return torch.empty_like(image, memory_format=_format_of(image))


def _format_of(image: torch.Tensor) -> torch.memory_format:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(image.dim())
    is_last = last is not None and not image.is_contiguous() and image.is_contiguous(memory_format=last)
    return last if last is not None and is_last else torch.contiguous_format


def _channels_last(image: torch.Tensor) -> bool:
    return _format_of(image) is not torch.contiguous_format or (
        image.is_contiguous() and image.stride(1) == 1
    )


SHAPES: dict[str, Callable[..., Any]] = {
    "record_stream": lambda tensor, stream: None,
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "batch_norm_stats": _batch_norm_stats,
    "batch_norm_gather_stats_with_counts": _batch_norm_gathered,
    "batch_norm_elemt": _batch_norm_elements,
    "batch_norm_backward_reduce": _batch_norm_backward_sums,
    "batch_norm_backward_elemt": _batch_norm_backward_elements,
}
"""What operators of `aten` that only CUDA has give, of which fake tensors know nothing
(aten/src/ATen/native/cuda/RNN.cu, Normalization.cu and Normalization.cuh, and cudnn/GridSampler.cpp)."""
