"""Ranks of a distributed run in one process: shards by hand, ranks that are alike, and what cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from memplan_engine import InputError
from memplan_engine.recordings.observed_flow import Category, state_bytes
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.runtime.ranks import rank_runs
from memplan_engine.runtime.ranks.fake_world import environment, fake_ranks
from memplan_engine.runtime.ranks.mailbox import Mailbox, waiting
from memplan_engine.runtime.ranks.rank_facts import shard_shape
from memplan_engine.runtime.ranks.rank_runs import chosen_ranks, observe_ranks
from memplan_engine.runtime.recorder import script_run
from memplan_engine.runtime.recorder.fake_run import observe_fake
from tests.support.processes import is_running

pytestmark = pytest.mark.usefixtures("forked_scripts")
SHARDED = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, int(sys.argv[1]), bias=False)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    model(torch.rand(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def of_kind(run: RankRun, kind: Category) -> list[int]:
    flow = run.observation.flow
    assert flow is not None
    sizes = flow.storages.nbytes.tolist()
    return sorted(
        {size for size, each in zip(sizes, flow.storages.categories, strict=True) if each is kind and size}
    )


def test_shards_are_those_of_the_rank_and_buffers_are_named(tmp_path: Path) -> None:
    """Eight rows of eight numbers on four ranks: two rows each; the whole is gathered and reduced."""
    (run,) = observe_ranks(script(tmp_path, SHARDED), ["8"], world_size=4)
    assert (run.rank, run.ranks, run.world_size, run.groups) == (0, (0, 1, 2, 3), 4, 1)
    flow = run.observation.flow
    assert flow is not None
    assert flow.steps == 3
    shard, whole = 2 * 8 * 4, 8 * 8 * 4
    # Two moments, and the number of the step.
    assert state_bytes(flow) == 3 * shard + 4
    assert of_kind(run, Category.WEIGHT) == [shard]
    assert of_kind(run, Category.GRADIENT) == [shard]
    assert of_kind(run, Category.ALL_GATHER) == [whole]
    assert of_kind(run, Category.REDUCE_SCATTER) == [whole]


def test_ranks_whose_shards_differ_are_run(tmp_path: Path) -> None:
    """Seven rows on four ranks: two each, and one for the last."""
    first, last = observe_ranks(script(tmp_path, SHARDED), ["7"], world_size=4)
    assert (first.ranks, last.ranks) == ((0, 1, 2), (3,))
    shards = [of_kind(run, Category.STATE)[-1] for run in (first, last)]
    assert shards == [2 * 8 * 4, 8 * 4]


def test_shapes_of_shards_by_hand() -> None:
    assert shard_shape((7, 4), (4,), (3,), [Shard(0)]) == (1, 4)
    assert shard_shape((7, 4), (2, 2), (1, 1), [Shard(0), Shard(1)]) == (3, 2)
    assert shard_shape((7, 4), (2, 2), (0, 1), [Replicate(), Shard(0)]) == (3, 4)
    assert shard_shape((8, 4), (2, 2), (1, 0), [_StridedShard(0, split_factor=2), Shard(0)]) == (2, 4)


def test_a_function_in_python_is_a_rank_and_nothing_stays() -> None:
    made = dist.init_process_group

    def train() -> None:
        dist.init_process_group("nccl")
        assert (dist.get_rank(), dist.get_world_size()) == (5, 6)
        assert os.environ["LOCAL_RANK"] == "5"
        everything = [torch.empty(3) for _ in range(6)]
        dist.all_gather(everything, torch.ones(3))

    before = dict(os.environ)
    with fake_ranks(5, 6):
        seen = observe_fake(train)
    assert seen.flow is not None
    assert [str(each) for each in seen.flow.storages.categories].count("all-gather") == 7
    assert not dist.is_initialized()
    assert dist.init_process_group is made
    assert dict(os.environ) == before


def test_the_environment_is_that_of_torchrun() -> None:
    found = environment(13, 20, a_machine=8)
    assert (found["LOCAL_RANK"], found["GROUP_RANK"], found["GROUP_WORLD_SIZE"]) == ("5", "1", "3")
    assert environment(1, 2)["LOCAL_WORLD_SIZE"] == "2"
    assert environment(13, 20, one_card=True)["LOCAL_RANK"] == "0"


@pytest.mark.parametrize(("rank", "world"), [(4, 4), (-1, 4), (0, 0), (0, 2**30)])
def test_a_rank_that_cannot_be_is_refused(rank: int, world: int) -> None:
    with pytest.raises(InputError), fake_ranks(rank, world):
        pass


def test_which_ranks() -> None:
    assert chosen_ranks("all", 3) == (0, 1, 2)
    assert chosen_ranks("2, 0,2", 3) == (0, 2)
    for wrong in ("3", "a", "", "-1", "0;1"):
        with pytest.raises(InputError, match="numbers from 0 to 2"):
            chosen_ranks(wrong, 3)


def test_a_world_that_the_mesh_cannot_have_is_refused_with_the_line(tmp_path: Path) -> None:
    text = """
    from torch.distributed.device_mesh import init_device_mesh
    init_device_mesh("cpu", (2, 4))
    """
    path = script(tmp_path, "\n".join(line.strip() for line in text.splitlines()))
    with pytest.raises(InputError, match=r"train\.py:3") as refused:
        observe_ranks(path, world_size=4)
    assert "expected a script that runs on that many ranks" in str(refused.value)


def test_an_object_that_no_rank_sends_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No message is on its way.
    monkeypatch.setattr(rank_runs, "STUCK_SECONDS", 0.1)
    started: list[int] = []
    start = script_run.start_module

    def noted(module: str, folder: Path) -> Any:
        process = start(module, folder)
        started.append(process.pid)
        return process

    monkeypatch.setattr(script_run, "start_module", noted)
    text = """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.recv_object_list([None], src=1)
    """
    path = script(tmp_path, "\n".join(line[4:] for line in text.splitlines()))
    with pytest.raises(
        InputError, match=r"rank 1 that is waited for at .*train\.py:5.*ended without"
    ) as refused:
        observe_ranks(path, world_size=2, ranks=[0])
    assert "rank 0" in str(refused.value)
    assert len(started) == 2
    assert not any(map(is_running, started))


def test_a_rank_that_a_chosen_one_waits_for_runs_too(tmp_path: Path) -> None:
    text = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    other, sizes = 1 - dist.get_rank(), [None]
    if dist.get_rank() == 0:
        dist.recv_object_list(sizes, src=other)
        torch.rand(*sizes)
        dist.send_object_list([2], dst=other)
    else:
        dist.send_object_list([5], dst=other)
        dist.recv_object_list(sizes, src=other)
        torch.rand(*sizes)
    """
    path = script(tmp_path, "\n".join(line[4:] for line in text.splitlines()))
    runs = observe_ranks(path, world_size=2, ranks=[0])
    made = [run.observation.flow.storages.nbytes for run in runs if run.observation.flow]
    assert [4 * 5 in sizes for sizes in made] == [True, False]
    assert [4 * 2 in sizes for sizes in made] == [False, True]


def test_an_object_without_others_is_refused_with_the_way_out() -> None:
    def asks() -> None:
        dist.init_process_group("gloo")
        dist.broadcast_object_list([None], src=1)

    with fake_ranks(0, 2), pytest.raises(InputError, match="memplan devices") as refused:
        observe_fake(asks)
    assert "rank 1" in str(refused.value)


def test_context_parallel_is_refused_with_the_reason() -> None:
    def asks() -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel

        with context_parallel(init_device_mesh("cpu", (2,)), buffers=[], buffer_seq_dims=[]):
            pass

    with fake_ranks(0, 2), pytest.raises(InputError, match="context parallel"):
        observe_fake(asks)


def test_flat_parameters_are_refused_with_the_way_out() -> None:
    def train() -> None:
        dist.init_process_group("nccl")
        FullyShardedDataParallel(torch.nn.Linear(8, 8))

    with fake_ranks(0, 2), pytest.raises(InputError, match=r"FSDP1. at .*test_ranks\.py:\d+.*fully_shard"):
        observe_fake(train)


def test_messages_come_in_order_and_say_who_waits(tmp_path: Path) -> None:
    first, second = Mailbox(0, tmp_path), Mailbox(1, tmp_path)
    for value in ("one", {"two": 2}):
        first.send(value, 1)
    first.send("all", "name")
    assert [second.receive(0), second.receive(0)] == ["one", {"two": 2}]
    assert second.receive(0, "name") == "all"
    assert waiting(tmp_path) == {}
    with second._waiting(0, tmp_path / "0-1-3.message"):
        assert waiting(tmp_path)[1][0] == 0
        first.send("three", 1)
        assert waiting(tmp_path) == {}, "it has what it waits for"


def test_strided_shards_are_looked_for_once_a_call() -> None:
    from types import SimpleNamespace

    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    from memplan_engine.runtime.ranks.fake_meshes import once_a_call

    looked: list[int] = []
    told: list[object] = []

    class Schema:
        def __init__(self, *placements: object) -> None:
            self.specs = [SimpleNamespace(placements=placements)]

        @property
        def args_spec(self) -> list[SimpleNamespace]:
            looked.append(1)
            return self.specs

    propagate = once_a_call(lambda strategy, schema: told.append(strategy))
    plain, strided = Schema(Shard(0), Replicate()), Schema(Shard(0), _StridedShard(0, split_factor=2))
    for strategy in range(5):
        propagate(strategy, plain)
    assert (len(looked), told) == (1, [])
    for strategy in range(3):
        propagate(strategy, strided)
    propagate("again", plain)
    assert (len(looked), told) == (3, [0, 1, 2])
