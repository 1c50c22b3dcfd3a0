"""The CPU in place of a device "cuda" that is not to be had: what asks for it gets the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from memplan_engine.torch_capture.torch_fake import on_host, patched


class ToTheCpu(TorchFunctionMode):
    """Has every call that names the device name the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What it gives there."""
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0].clone()
        if func is torch.Tensor.to or "device" in kwargs:
            args, kwargs = pytree.tree_map(_named, (args, kwargs))
        return func(*args, **kwargs)


def _named(leaf: Any) -> Any:
    if isinstance(leaf, str) and leaf.partition(":")[0] == "cuda":
        return torch.device("cpu")
    return on_host(leaf)


@contextmanager
def as_on_the_cpu() -> Iterator[None]:
    """With the device "cuda" as another name of the CPU, and autocast for it as the CPU's."""
    make = torch.amp.autocast_mode.autocast.__init__

    def made(context: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        make(context, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    with patched((torch.amp.autocast_mode.autocast, "__init__", made)), ToTheCpu():
        yield
