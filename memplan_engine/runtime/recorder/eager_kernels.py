"""What a device runs as one operator, and how much that holds, where fake tensors say something else.

Beside what `torch_operators` says of any call of an operator, here stands what depends on the run: whether
gradients are recorded. The ways that eager mode takes before the dispatcher is reached (an LSTM as one oneDNN
call a layer, the fused layers of a transformer) are those of `torch_eager_ops` and `torch_exporting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from memplan_engine.runtime.recorder.cuda_kernels import CUDA_KERNELS
from memplan_engine.torch_capture.torch_operators import as_allocated
from memplan_engine.torch_capture.training.torch_eager_ops import workspace_bytes

Kernel = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""Makes of what fake tensors gave for these arguments what the device's kernel gives."""


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


ANYWHERE: dict[str, Kernel] = {"_c10d_functional::wait_tensor": _waited_for}
KERNELS: dict[str, dict[str, Kernel]] = {
    "cpu": {"aten::mkldnn_rnn_layer": _lstm_layer, **ANYWHERE},
    "cuda": {**CUDA_KERNELS, **ANYWHERE},
}
"""By device, what its kernels make otherwise. Tests hold each of the CPU's against a real run, and those of
CUDA where there is one."""
