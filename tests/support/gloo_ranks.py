"""A script under real gloo processes, each with a recorder of its own that shares no code with memplan.

Of each operator a rank writes its name and the live bytes after it. A storage counts from the operator that
first returns it until torch lets go of it. What is first seen as an argument was made by the backend itself
(gloo clones what it reduces), or off the dispatcher, and is counted apart.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel  # What it makes when it is imported is no part of a run.
from torch._guards import active_fake_mode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.rank_processes import RankProcesses, Rows

NOISE = ("prim.device", "profiler.")
FRESH = ("aten.lift_fresh.default", "aten.lift.default")


def storages(value: Any) -> Iterator[torch.UntypedStorage]:
    """Of the tensors in `value` that have bytes, which those on meta have not; of what is made of others
    theirs."""
    for leaf in pytree.tree_leaves(value):
        if hasattr(leaf, "__tensor_flatten__"):
            yield from storages([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]])
        elif isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
            yield leaf.untyped_storage()


class Live(TorchDispatchMode):
    """The bytes of all storages, by weak references to them."""

    def __init__(self) -> None:
        super().__init__()
        self.refs: dict[int, Any] = {}
        self.sizes: dict[int, tuple[int, bool]] = {}
        self.now, self.apart = 0, 0
        self.rows: list[tuple[str, int]] = []

    def see(self, storage: torch.UntypedStorage, apart: bool = False) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        if key not in self.sizes:
            self.refs[key] = weakref.ref(storage, lambda _: self.gone(key))
            self.sizes[key] = (0, apart)
        before, apart = self.sizes[key]
        self.sizes[key] = (nbytes, apart)
        self.add(nbytes - before, apart)

    def gone(self, key: int) -> None:
        nbytes, apart = self.sizes.pop(key)
        del self.refs[key]
        self.add(-nbytes, apart)

    def add(self, nbytes: int, apart: bool) -> None:
        if apart:
            self.apart += nbytes
        else:
            self.now += nbytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # DTensor and the like: their parts come by themselves.
            return NotImplemented
        kwargs = kwargs or {}
        name = str(func)
        if active_fake_mode() is not None or name.startswith(NOISE):
            return func(*args, **kwargs)
        # `torch.tensor(…)` gives back what nobody else has seen.
        for storage in storages((args, kwargs)) if name not in FRESH else ():
            self.see(storage, apart=True)
        value = func(*args, **kwargs)
        for storage in storages(value):
            self.see(storage)
        self.rows.append((name, self.now))
        return value


def main(rank: str, world: str, port: str, out: str, script: str, *arguments: str) -> None:
    """What the rank does, and writes to `out`; those of one world meet at `port`."""
    os.environ |= {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    sys.argv = [script, *arguments]
    torch.set_num_threads(1)
    mode = Live()
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        if storage._cdata in mode.sizes:
            mode.see(storage)
        return result

    torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
    gc.disable()
    with mode:
        runpy.run_path(script, run_name="__main__")
    Path(out).write_text(json.dumps(mode.rows))
    # Threads of gloo are of no more use.
    os._exit(0)


def run_for_real(processes: RankProcesses, script: Path, world: int, arguments: list[str]) -> list[Rows]:
    """Of each rank its operators with the live bytes after them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return processes(__name__, str(port), script, world, arguments)
