"""Checkpoints that a script saves in a predicted run: there are no bytes to be written, and files that are
there already stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from memplan_engine.errors import InputError
from memplan_engine.runtime.recorder.fake_device import current_device
from memplan_engine.runtime.recorder.op_recorder import recorder_on
from memplan_engine.torch_capture.torch_exporting import replaced
from memplan_engine.torch_capture.torch_fake import patched
from memplan_engine.torch_capture.torch_storages import tensors_in
from memplan_engine.torch_capture.training.torch_origins import who_asks

SAVER = "torch.distributed.checkpoint.state_dict_saver"
LOADER = "torch.distributed.checkpoint.state_dict_loader"
SAVED = "what torch.distributed.checkpoint saves as written, without a folder"
SAVED_LATER = "what `async_save` copies to the host as written and gone at once"
LOADED = "what torch.distributed.checkpoint loads as the values that are there"


@contextmanager
def keeping_checkpoints() -> Iterator[None]:
    """With `torch.save` of fake tensors noting what was saved where, and `torch.load` giving new ones like
    them; other files are read as usual."""
    saved: dict[str, Any] = {}
    write, read, make = torch.save, torch.load, torch.asarray

    def save(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        leaves, form = pytree.tree_flatten(value)
        if not any(isinstance(leaf, (FakeTensor, torch.nn.Module)) for leaf in leaves):
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
        leaves = [
            torch.empty_like(leaf, device=place or device) if isinstance(leaf, torch.Tensor) else leaf
            for leaf, device in zip(forms, devices, strict=True)
        ]
        return pytree.tree_unflatten(leaves, form)

    def as_array(value: Any, *args: Any, **kwargs: Any) -> Any:
        # What safetensors makes a tensor of is a part of a file, of which fake tensors cannot tell the shape.
        if not isinstance(value, torch.UntypedStorage):
            return make(value, *args, **kwargs)
        with unset_fake_temporarily(), _disable_current_modes():
            form = make(value, *args, **kwargs).to("meta")
        return torch.empty_like(form, device="cpu")

    with (
        patched((torch, "save", save), (torch, "load", load), (torch, "asarray", as_array)),
        _keeping_distributed_checkpoints(),
    ):
        yield


@contextmanager
def _keeping_distributed_checkpoints() -> Iterator[None]:
    """With `save`, `async_save` and `load` of torch.distributed.checkpoint writing and reading no folder.
    `load` makes what it reads each tensor into, and leaves its values as they are."""
    saved: set[str] = set()

    def save(original: Any, state: Any, *args: Any, **kwargs: Any) -> None:
        _note(SAVED)
        saved.add(_folder(args, kwargs))

    def save_later(original: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        save(original, state, *args, **kwargs)
        # On an accelerator the copies lie on the host, of which the figures are not.
        _note(SAVED_LATER, doubt=not current_device().is_cuda)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def load(original: Any, state: Any, *args: Any, **kwargs: Any) -> None:
        folder = _folder(args, kwargs)
        if folder not in saved and not os.path.isdir(folder):
            found = f"a checkpoint that is not there, {os.path.basename(folder)!r}, loaded {who_asks()}"
            raise InputError("fake run", "", found, "a folder that the run has saved, or one that exists")
        _note(LOADED)
        read = None
        for each in tensors_in(state):
            # The one before goes when the next is there.
            read = torch.empty(each.shape, dtype=each.dtype, device="cpu")
        del read

    stand_ins: dict[tuple[str, str], Callable[..., Any]] = {
        (SAVER, "save"): save,
        (SAVER, "save_state_dict"): save,
        (SAVER, "async_save"): save_later,
        (LOADER, "load"): load,
        (LOADER, "load_state_dict"): load,
    }
    with ExitStack() as undo:
        for (home, name), stand_in in stand_ins.items():
            undo.enter_context(replaced(name, stand_in, home=home))
        yield


def _folder(args: Any, kwargs: Any) -> str:
    """Return the real path of the folder that a call of torch.distributed.checkpoint names."""
    named = kwargs.get("checkpoint_id")
    for each in (kwargs.get("storage_writer"), kwargs.get("storage_reader"), *args):
        named = named or getattr(each, "checkpoint_id", None)
    return os.path.realpath(named) if isinstance(named, (str, os.PathLike)) else str(named)


def _note(note: str, doubt: bool = False) -> None:
    recorder = recorder_on()
    if recorder is not None:
        recorder.notes[note] = doubt


def _form(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with unset_fake_temporarily(), _disable_current_modes():
        return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype, device="meta")


def _device(leaf: Any) -> Any:
    return leaf.device if isinstance(leaf, torch.Tensor) else None
