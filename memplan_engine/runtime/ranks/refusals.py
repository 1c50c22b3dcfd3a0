"""What would wait for ranks that do not run, or be told wrongly: refused, with the line and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import experimental

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere
from memplan_engine.torch_capture.training.torch_origins import who_asks

RING = (
    "context parallel",
    "attention whose keys go round the ranks is not seen under a fake process group",
    "sequences that each rank has whole, or shards of them by tensor parallel (SequenceParallel)",
)
FLAT = (
    "FullyShardedDataParallel (FSDP1)",
    "its flat parameters have storages that come and go by streams, which no fake tensor follows",
    "fully_shard of torch.distributed.fsdp (FSDP2)",
)
STORE = ("a store of its own", "who waits for another rank there waits for ever", "init_process_group alone")
OBJECTS = ("objects of other ranks", "these ranks do not run", "objects that each rank makes by itself")


def refusals() -> list[Patch]:
    """For `torch_fake.patched`."""
    patches: list[Patch] = [(FullyShardedDataParallel, "__init__", _refuse(*FLAT))]
    for name in ("context_parallel",):
        call = getattr(experimental, name, None)
        if call is not None:
            patches += everywhere(name, call, _refuse(*RING))
    for name in ("TCPStore", "FileStore"):
        if hasattr(dist, name):
            patches += everywhere(name, getattr(dist, name), _refuse(*STORE))
    for name in ("gather_object", "scatter_object_list"):
        patches += everywhere(name, getattr(dist, name), _refuse(*OBJECTS))
    return patches


def _refuse(what: str, why: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise InputError("fake run", "", f"{what} {who_asks()}: {why}", instead)

    return refuse
