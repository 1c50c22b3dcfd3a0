"""What a function on fake tensors finds outside of itself is left as it was found: models, their gradients
and buffers, optimizers, schedules, scalers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import CONSTANT_NUMEL_LIMIT
from torch.optim.lr_scheduler import LRScheduler

PARTS = ("_parameters", "_buffers", "_modules")
"""Dictionaries of a module, which are written in place."""


@contextmanager
def left_as_found() -> Iterator[None]:
    """With every module, optimizer, schedule, scaler and tensor that there is put back in the end, however
    it ends: attributes, modes, gradients, numbers in buffers (torch counts batches on the real ones, too)."""
    kinds = (torch.nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler, torch.Tensor)
    # By the type: `isinstance` asks objects, of which some do things when they are asked.
    found = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    ways_back = [way for each in found for way in _ways_back(each)]
    del found
    try:
        yield
    finally:
        for way in ways_back:
            way()


def _ways_back(found: Any) -> Iterator[Callable[[], None]]:
    if isinstance(found, torch.Tensor):
        if found.is_leaf:
            yield partial(_set_gradient, found, found.grad)
        return
    yield partial(_refill, vars(found), dict(vars(found)))
    if isinstance(found, torch.nn.Module):
        # Those of scripted modules are no dictionaries.
        parts = [part for name in PARTS if isinstance(part := vars(found).get(name), dict)]
        yield from (partial(_refill, part, dict(part)) for part in parts)
        for buffer in vars(found).get("_buffers", {}).values():
            if type(buffer) is torch.Tensor and buffer.numel() <= CONSTANT_NUMEL_LIMIT and not buffer.is_meta:
                yield partial(_write, buffer, buffer.detach().clone())
    if isinstance(found, torch.optim.Optimizer):
        for kept in (*found.state.values(), *found.param_groups, found.state):
            if isinstance(kept, dict):
                yield partial(_refill, kept, dict(kept))


def _refill(filled: dict[Any, Any], before: dict[Any, Any]) -> None:
    filled.clear()
    filled.update(before)


def _set_gradient(tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
    if tensor.grad is not gradient:
        tensor.grad = gradient


def _write(buffer: torch.Tensor, before: torch.Tensor) -> None:
    with torch.no_grad():
        buffer.copy_(before)
