"""What would wait for ranks that do not run, or be told wrongly: refused, with the line and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed.tensor import experimental
from torch.testing._internal.distributed.fake_pg import FakeStore

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere
from memplan_engine.torch_capture.training.torch_origins import who_asks

RING = (
    "context parallel",
    "attention whose keys go round the ranks is not seen under a fake process group",
    "sequences that each rank has whole, or shards of them by tensor parallel (SequenceParallel)",
)
STORE = ("a store of its own", "who waits for another rank there waits for ever", "init_process_group alone")
ASKED = (
    "a question to the store of the process group",
    "ranks leave nothing for each other there",
    "objects that one rank sends to others (broadcast_object_list, send_object_list)",
)
QUESTIONS = (
    *("wait", "get", "set", "add", "check", "append", "compare_set", "delete_key", "num_keys", "barrier"),
    *("multi_get", "multi_set", "list_keys", "queue_push", "queue_pop", "queue_len"),
)
"""Methods of stores."""
OBJECTS = ("objects of other ranks", "these ranks do not run", "objects that each rank makes by itself")


def refusals() -> list[Patch]:
    """For `torch_fake.patched`."""
    patches: list[Patch] = []
    for name in ("context_parallel",):
        call = getattr(experimental, name, None)
        if call is not None:
            patches += everywhere(name, call, _refuse(*RING))
    for name in ("TCPStore", "FileStore"):
        if hasattr(dist, name):
            patches += everywhere(name, getattr(dist, name), _refuse(*STORE))
    for name in ("scatter_object_list",):
        patches += everywhere(name, getattr(dist, name), _refuse(*OBJECTS))
    stores = ((name, vars(dist.Store).get(name)) for name in QUESTIONS)
    patches += [(dist.Store, name, _unless_fake(ask)) for name, ask in stores if ask is not None]
    return patches


def _unless_fake(ask: Callable[..., Any]) -> Callable[..., Any]:
    """`ask`, a method of stores, of such as keep anything."""

    def asked(store: Any, *args: Any, **kwargs: Any) -> Any:
        end = store
        while isinstance(end, dist.PrefixStore):
            end = end.underlying_store
        # What Python made of it is gone by then.
        is_fake = type(end) in (dist.Store, FakeStore)
        return _refuse(*ASKED)() if is_fake else ask(store, *args, **kwargs)

    return asked


def _refuse(what: str, why: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise InputError("fake run", "", f"{what} {who_asks()}: {why}", instead)

    return refuse
