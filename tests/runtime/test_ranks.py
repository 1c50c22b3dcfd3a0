"""Ranks of a distributed run in one process: shards by hand, ranks that are alike, and what cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from memplan_engine import InputError
from memplan_engine.recordings.observed_flow import Category, state_bytes
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.runtime.ranks.fake_world import fake_ranks
from memplan_engine.runtime.ranks.mailbox import Mailbox, waiting
from memplan_engine.runtime.ranks.rank_facts import shard_shape
from memplan_engine.runtime.ranks.rank_launch import environment
from memplan_engine.runtime.ranks.rank_runs import chosen_ranks, observe_ranks
from memplan_engine.runtime.recorder.fake_run import observe_fake
from memplan_engine.runtime.scripts.host import _hosts
from tests.support.processes import children_of

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

FLAT = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
model = FullyShardedDataParallel(
    torch.nn.Linear(8, 7, bias=False), use_orig_params=len(sys.argv) > 1, device_id=torch.device("cpu")
)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    model(torch.rand(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SHARED_OUT = """
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")
layers = [torch.nn.Linear(8, 8, bias=False) for _ in range(3)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam)
for _ in range(3):
    model(torch.rand(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
COMMON = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8, bias=False)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(2):
    loss = model(torch.rand(2, 8)).sum()
    loss.backward()
    optimizer.step()
    assert f"{loss:.2f}" == "1.00"
torch.save(model.state_dict(), sys.argv[1])
model.load_state_dict(torch.load(sys.argv[1]))
assert type(model.weight).__name__ == "DTensor"
dcp.save({"model": model.state_dict()}, checkpoint_id=sys.argv[1] + "_folder")
dcp.load({"model": model.state_dict()}, checkpoint_id=sys.argv[1] + "_folder")
of_all = [None, None] if dist.get_rank() == 0 else None
dist.gather_object("mine", of_all)
assert of_all in (None, ["mine", "mine"])
"""
SPLIT = """
import os
import torch
import torch.distributed as dist
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
pipe = pipeline(model, (torch.rand(2, 8),), split_spec={"1": SplitPoint.BEGINNING})
stage = pipe.build_stage(rank, torch.device("cuda", rank))
schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
words = {0: (torch.rand(4, 8, device="cuda"),), 1: ()}[rank]
schedule.step(*words, **({"target": torch.rand(4, 8, device="cuda")} if rank else {}))
"""
MOVED = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
weight = torch.nn.Parameter(torch.rand(64))
weight.data = weight.data.to("cuda")
assert weight.device.type == weight.data.device.type == "cuda"
(weight * torch.rand(64, device="cuda")).sum().backward()
assert weight.grad.device.type == "cuda"
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


def test_flat_parameters_are_shards_of_one_size(tmp_path: Path) -> None:
    """56 numbers on four ranks: 14 each. With the original parameters each rank has another part of them."""
    path = script(tmp_path, FLAT)
    (run,) = observe_ranks(path, world_size=4)
    assert run.ranks == (0, 1, 2, 3)
    assert of_kind(run, Category.STATE) == [4, 14 * 4]
    assert of_kind(run, Category.ALL_GATHER) == [56 * 4]
    assert [each.ranks for each in observe_ranks(path, ["original"], world_size=2)] == [(0,), (1,)]


def test_an_optimizer_that_is_shared_out_gives_each_rank_its_own(tmp_path: Path) -> None:
    """Three weights of 256 B, each with two moments and the number of its step, on four ranks."""
    runs = observe_ranks(script(tmp_path, SHARED_OUT), world_size=4)
    assert [run.ranks for run in runs] == [(0, 1, 2), (3,)]
    sizes = []
    for run in runs:
        assert run.observation.flow is not None
        sizes.append(state_bytes(run.observation.flow))
    assert sizes == [3 * 256 + 2 * 256 + 4, 3 * 256]


def test_checkpoints_and_objects_of_other_ranks_leave_files_as_they_are(tmp_path: Path) -> None:
    kept = tmp_path / "model.pt"
    kept.write_text("precious")
    (run,) = observe_ranks(script(tmp_path, COMMON), [str(kept)], world_size=2)
    assert run.ranks == (0, 1)
    assert kept.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "train.py"]


def test_a_model_that_torch_splits_holds_its_stage(tmp_path: Path) -> None:
    """72 numbers of a layer; what torch.export makes to split the model is no tensor of the run."""
    first, last = observe_ranks(script(tmp_path, SPLIT), world_size=2, device="cuda")
    for run in (first, last):
        assert of_kind(run, Category.UNKNOWN) == []
        assert of_kind(run, Category.WEIGHT) == [8 * 4, 64 * 4]


@pytest.mark.parametrize("call", ["dist.send(x, 7)", "dist.recv(x, src=-2)", "dist.isend(x, dst=2)"])
def test_a_message_for_a_rank_that_there_is_not_is_refused_with_the_line(tmp_path: Path, call: str) -> None:
    begin = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
    text = f"{begin}x = torch.rand(2)\n{call}\n"
    with pytest.raises(InputError, match=r"of a world of 2, named at .*train\.py:5"):
        observe_ranks(script(tmp_path, text), world_size=2)


def test_data_of_another_device_moves_a_tensor(tmp_path: Path) -> None:
    (run,) = observe_ranks(script(tmp_path, MOVED), world_size=1, device="cuda")
    flow = run.observation.flow
    assert flow is not None
    assert flow.storages.device[flow.storages.nbytes == 256].max() == 0


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


def test_a_rank_may_write_more_than_a_pipe_holds(tmp_path: Path) -> None:
    """Where nobody reads meanwhile, a full pipe (64 KiB on Linux) would hold it for ever."""
    loud = "import os\nos.write(2, b'x' * 1_000_000)\n" + SHARDED
    (run,) = observe_ranks(script(tmp_path, loud), ["8"], world_size=2, seconds=120)
    assert run.ranks == (0, 1)


def test_an_object_that_nobody_sends_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
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
    hosts = {host.process.pid for host in _hosts.values()}
    assert hosts
    assert set().union(*map(children_of, hosts)) == set()


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


def test_messages_come_in_order_and_say_who_waits(tmp_path: Path) -> None:
    first, second = Mailbox(0, tmp_path), Mailbox(1, tmp_path)
    for value in ("one", {"two": 2}):
        first.send(value, 1)
    first.send("all", "name")
    assert [second.receive(0), second.receive(0)] == ["one", {"two": 2}]
    assert second.receive(0, "name") == "all"
    assert waiting(tmp_path) == {}
    with second._waiting(7):
        assert waiting(tmp_path)[1][0] == 7
