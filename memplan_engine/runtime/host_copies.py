"""Copies to the host and back, as functions that a program calls: on a CPU, whose host is other memory."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from memplan_engine.errors import InputError


class Layout(NamedTuple):
    """How a tensor lies in its storage: strides in elements, the offset in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype


class HostCopy(NamedTuple):
    """The `nbytes` of a storage outside of torch's memory; no `content` of a storage that has none, of a fake
    tensor or one on meta."""

    nbytes: int
    content: bytes | None


def to_host(tensor: torch.Tensor, offset: int, nbytes: int) -> HostCopy:
    """A copy of the `nbytes` in which `tensor` lies from `offset` bytes on: its storage, or its place in an
    arena.

    Raises
    ------
    InputError: a tensor that lies on a GPU.
    """
    if tensor.device.type not in ("cpu", "meta"):
        expected = "a CPU: copies beside a GPU's kernels are planned, and not run yet"
        raise InputError("copies to the host", "", f"a tensor on {tensor.device}", expected)
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return HostCopy(nbytes, None)
    return HostCopy(nbytes, ctypes.string_at(tensor.data_ptr() - offset, nbytes))


def on_host(tensor: torch.Tensor, copy: HostCopy) -> HostCopy:
    """`copy`, once it is there: at once."""
    return copy


def to_device(copy: HostCopy, layouts: tuple[Layout, ...]) -> tuple[torch.Tensor, ...]:
    """Tensors that lie as `layouts` say in a new storage with the content of `copy`."""
    memory = torch.empty(copy.nbytes, dtype=torch.uint8)
    if copy.content is not None:
        ctypes.memmove(memory.data_ptr(), copy.content, copy.nbytes)
    return tuple(
        torch.as_strided(
            memory.view(each.dtype), each.shape, each.strides, each.offset // each.dtype.itemsize
        )
        for each in layouts
    )
