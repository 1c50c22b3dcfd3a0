"""Checkpoints that a script saves in a predicted run: there are no bytes to be written, and files that are
there already stay as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.torch_capture.torch_fake import patched


@contextmanager
def keeping_checkpoints() -> Iterator[None]:
    """With `torch.save` of fake tensors noting what was saved where, and `torch.load` giving new ones like
    them; other files are read as ever."""
    saved: dict[str, Any] = {}
    write, read, make = torch.save, torch.load, torch.asarray

    def save(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        leaves, form = pytree.tree_flatten(value)
        # Tensors of any kind: those of DTensor hold fake ones.
        if not any(isinstance(leaf, (torch.Tensor, torch.nn.Module)) for leaf in leaves):
            write(value, file, *args, **kwargs)
        elif isinstance(file, (str, os.PathLike)):
            # The form of each tensor, not the tensor: a file holds no memory.
            forms = [_form(leaf) for leaf in leaves]
            saved[os.path.realpath(file)] = (forms, [_device(leaf) for leaf in leaves], form)

    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        key = os.path.realpath(file) if isinstance(file, (str, os.PathLike)) else ""
        if key not in saved:
            return read(file, map_location, *args, **kwargs)
        forms, devices, form = saved[key]
        place = map_location if isinstance(map_location, (str, torch.device)) else None
        leaves = [_like(leaf, place or device) for leaf, device in zip(forms, devices, strict=True)]
        return pytree.tree_unflatten(leaves, form)

    def as_array(value: Any, *args: Any, **kwargs: Any) -> Any:
        # What safetensors makes a tensor of is a part of a file, of which fake tensors cannot tell the shape.
        if not isinstance(value, torch.UntypedStorage):
            return make(value, *args, **kwargs)
        with unset_fake_temporarily(), _disable_current_modes():
            form = make(value, *args, **kwargs).to("meta")
        return torch.empty_like(form, device="cpu")

    with patched((torch, "save", save), (torch, "load", load), (torch, "asarray", as_array)):
        yield


class _Sharded(NamedTuple):
    """A DTensor: the form of this rank's part, and the layout of the whole."""

    part: torch.Tensor
    spec: Any


def _like(form: Any, device: Any) -> Any:
    """A new leaf of that form."""
    if isinstance(form, _Sharded):
        # The process has it where a leaf is one.
        from torch.distributed.tensor import DTensor

        return DTensor(torch.empty_like(form.part, device=device), form.spec, requires_grad=False)  # type: ignore[no-untyped-call]
    return torch.empty_like(form, device=device) if isinstance(form, torch.Tensor) else form


def _form(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if hasattr(leaf, "_local_tensor") and hasattr(leaf, "_spec"):
        return _Sharded(_form(leaf._local_tensor), leaf._spec)
    with unset_fake_temporarily(), _disable_current_modes():
        return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype, device="meta")


def _device(leaf: Any) -> Any:
    return leaf.device if isinstance(leaf, torch.Tensor) else None
