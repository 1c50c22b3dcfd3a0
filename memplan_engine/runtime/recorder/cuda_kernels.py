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


SHAPES: dict[str, Callable[..., Any]] = {
    "record_stream": lambda tensor, stream: None,
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
"""What operators of `aten` that only CUDA has give, of which fake tensors know nothing
(aten/src/ATen/native/cuda/RNN.cu and cudnn/GridSampler.cpp)."""
