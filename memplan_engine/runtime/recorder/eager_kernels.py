"""What a device runs as one operator, and how much that holds, where fake tensors say something else.

Beside what `torch_operators` says of any call of an operator, here stands what depends on the run: whether
gradients are recorded. The ways that eager mode takes before the dispatcher is reached (an LSTM as one oneDNN
call a layer, the fused layers of a transformer) are those of `torch_eager_ops` and `torch_exporting`.

Attention on a card is chosen by `cuda_guard.cpp`; what each kernel gives are torch's own fake results, except
those here, read in torch's sources (aten/src/ATen/native/transformers/cuda/attention.cu and
flash_attn/flash_api.cpp). tests/runtime/test_real_cuda.py holds them against a card where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from memplan_engine.torch_capture.torch_operators import arguments_of, as_allocated, shrunk
from memplan_engine.torch_capture.training.torch_eager_ops import workspace_bytes

Kernel = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Makes of what fake tensors gave for these arguments what the device's kernel gives."""
CUDNN_ATTENTION = "_scaled_dot_product_cudnn_attention"
"""Gives output, logsumexp, two places of sequences, two lengths, seed, offset, mask."""
EFFICIENT_ATTENTION = "_scaled_dot_product_efficient_attention"
"""Gives output, logsumexp, seed, offset."""


def as_in_eager(operator: Any, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`value`, which `operator` gave under fake tensors for these arguments, as its device would have made
    it in an eager run."""
    value = as_allocated(operator, value, args, kwargs)
    name = operator.name()
    for device, kernels in KERNELS.items():
        if name in kernels and _lies_on(args, device):
            return kernels[name](value, args, kwargs)
    return value


def _lies_on(args: tuple[Any, ...], device: str) -> bool:
    return any(isinstance(arg, torch.Tensor) and arg.device.type == device for arg in args)


def _lstm_layer(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """While gradients are recorded the layer makes a workspace (output 3) for its backward pass, of a size
    that only oneDNN knows."""
    if not torch.is_grad_enabled() or kwargs:
        return value
    shapes = tuple(tuple(tensor.shape) for tensor in args[:7])
    nbytes = workspace_bytes(shapes, *args[7:8], *args[9:], args[0].dtype)
    return (*value[:3], args[0].new_empty(nbytes, dtype=torch.uint8))


def _waited_for(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a collective gave, itself; fake tensors make another one."""
    return args[0]


def _cudnn_attention(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Unless asked for it the kernel makes no logsumexp."""
    operator = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    if arguments_of(operator, args, kwargs)["compute_log_sumexp"]:
        return value
    return (value[0], None, *value[2:])


def _efficient_attention(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Outside of a CUDA graph seed and offset lie on the host."""
    return (*value[:2], *(torch.empty((), dtype=torch.int64) for _ in range(2)))


def _unique(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Give the values (output 0) and, if requested, the counts (output 2) storages as large as the input;
    room for two of booleans. CUB finds them (UniqueCub.cu)."""
    arguments = arguments_of(torch.ops.aten._unique2.default, args, kwargs, defaults=True)
    source, (found, inverse, counts) = arguments["self"], value
    if not source.numel():
        return value
    if source.dtype is torch.bool:
        return shrunk(found, 2), inverse, shrunk(counts, 2)
    counts = shrunk(counts, source.numel()) if arguments["return_counts"] else counts
    return shrunk(found, source.numel()), inverse, counts


def _unique_consecutive(value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Do as `_unique` does, with booleans like all others. Along a dimension results have their own sizes."""
    operator = torch.ops.aten.unique_consecutive.default
    arguments = arguments_of(operator, args, kwargs, defaults=True)
    source, (found, inverse, counts) = arguments["self"], value
    if arguments["dim"] is not None:
        return value
    counts = shrunk(counts, source.numel()) if arguments["return_counts"] else counts
    return shrunk(found, source.numel()), inverse, counts


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


ANYWHERE: dict[str, Kernel] = {"_c10d_functional::wait_tensor": _waited_for}
KERNELS: dict[str, dict[str, Kernel]] = {
    "cpu": {"aten::mkldnn_rnn_layer": _lstm_layer, **ANYWHERE},
    "cuda": {
        f"aten::{CUDNN_ATTENTION}": _cudnn_attention,
        f"aten::{EFFICIENT_ATTENTION}": _efficient_attention,
        "aten::_unique2": _unique,
        "aten::unique_consecutive": _unique_consecutive,
        **ANYWHERE,
    },
}
"""By device, what its kernels make otherwise. Tests hold each of the CPU's against a real run, and those of
CUDA where there is one."""
SHAPES: dict[str, Callable[..., Any]] = {
    "record_stream": lambda tensor, stream: None,
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
"""What operators of `aten` that only CUDA has give, of which fake tensors know nothing
(aten/src/ATen/native/cuda/RNN.cu and cudnn/GridSampler.cpp)."""
