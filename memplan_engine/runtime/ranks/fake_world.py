"""One rank of a distributed run, in a process that believes that the others are there too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from memplan_engine.errors import InputError
from memplan_engine.runtime.ranks.checked_sizes import size_checks
from memplan_engine.runtime.ranks.fake_checkpoints import leaving_checkpoints
from memplan_engine.runtime.ranks.fake_meshes import Patch, everywhere, mesh_patches
from memplan_engine.runtime.ranks.fake_messages import message_patches
from memplan_engine.runtime.ranks.fake_replicas import replica_patches
from memplan_engine.runtime.ranks.mailbox import Mailbox
from memplan_engine.runtime.ranks.rank_facts import RankFacts
from memplan_engine.runtime.ranks.rank_launch import A_MACHINE, check_rank, environment
from memplan_engine.runtime.ranks.refusals import refusals
from memplan_engine.torch_capture.torch_fake import patched


@contextmanager
def fake_ranks(
    rank: int,
    world_size: int,
    *,
    a_machine: int = A_MACHINE,
    one_card: bool = False,
    mailbox: Path | None = None,
) -> Iterator[RankFacts]:
    """With this process as `rank` of `world_size`, as `torchrun` starts it on machines of `a_machine`
    devices each: the environment, a process group in which collectives give at once, meshes of all ranks.

    To be entered before the script is imported, in a process of its own or one that has no process group;
    tensors are to be fake (`observe_fake`). With `one_card` each rank finds its own card as the first and
    only one, as where CUDA_VISIBLE_DEVICES names one. Gives what the run says of the other ranks.

    Raises
    ------
    InputError: a rank or a world size that cannot be, or a process group that is there.
    """
    check_rank(rank, world_size)
    if dist.is_initialized():
        raise InputError("fake_ranks", "", "a process group that is there", "a process without one")
    facts = RankFacts(rank, world_size)
    with ExitStack() as undo:
        undo.enter_context(mock.patch.dict(os.environ, environment(rank, world_size, a_machine, one_card)))
        undo.callback(_end)
        undo.enter_context(facts.noted())
        undo.enter_context(leaving_checkpoints())
        undo.enter_context(
            patched(
                *_group_patches(rank, world_size),
                *mesh_patches(),
                *message_patches(Mailbox(rank, mailbox), facts.tensors),
                *replica_patches(),
                *size_checks(),
                *refusals(),
            )
        )
        yield facts


def _group_patches(rank: int, world_size: int) -> list[Patch]:
    """A group for this rank, whatever backend is asked for."""
    start = distributed_c10d.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        asked = (kwargs.get("rank", -1), rank), (kwargs.get("world_size", -1), world_size)
        for given, own in asked:
            if given not in (-1, own):
                found = f"a process group for {given}, where this is {own} (rank, or size of the world)"
                raise InputError("fake run", "", found, "the numbers of the launcher: RANK, WORLD_SIZE")
        with unset_fake_temporarily():
            start("fake", rank=rank, world_size=world_size, store=FakeStore())

    return everywhere("init_process_group", start, init_process_group)


def _end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
