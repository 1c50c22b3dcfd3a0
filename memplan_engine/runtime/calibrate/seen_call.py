"""The features of a call of an operator on live tensors, real or fake."""

from __future__ import annotations

from typing import Any

import torch

from memplan_engine.calibration.kernel_table import Machine
from memplan_engine.calibration.op_features import Features, Shown, features
from memplan_engine.torch_capture.torch_storages import operator_name, tensors_in


def features_of_call(operator: Any, args: Any, kwargs: Any, value: Any, threads: int) -> Features:
    """The features of a call of `operator` that gave `value`."""
    kind = operator_name(operator).replace("::", ".", 1)
    return features(kind, shown_in((args, kwargs)), shown_in(value), threads)


def shown_in(value: Any) -> list[Shown]:
    """The tensors in `value`, in order, but for those whose layout is a library's own."""
    return [
        Shown(
            tuple(tensor.shape),
            tuple(tensor.stride()),
            str(tensor.dtype).removeprefix("torch."),
            tensor.numel() * tensor.element_size(),
        )
        for tensor in tensors_in(value)
        if tensor.layout is torch.strided
    ]


def this_machine() -> Machine:
    """What a calibration made in this process holds for."""
    return Machine(torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability())
