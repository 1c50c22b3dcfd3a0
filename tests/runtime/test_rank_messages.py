"""Tensors that ranks send each other, and what collectives are given: what never arrives, or cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from memplan_engine import InputError
from memplan_engine.recordings.observed_flow import Category
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.runtime.ranks.fake_world import fake_ranks
from memplan_engine.runtime.ranks.rank_runs import observe_ranks
from memplan_engine.runtime.ranks.tensor_messages import LostTensor, TensorMessages, lost_tensors
from memplan_engine.runtime.recorder.fake_run import observe_fake

BEGIN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.rand(4)
"""
TRAIN = """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(5):
    model(torch.rand(2, 4)).sum().backward()
    optimizer.step()
"""
WAITS = "if rank == 1:\n    dist.recv(x, src=0)\n"


def ranks_of(folder: Path, text: str, **how: Any) -> tuple[RankRun, ...]:
    (folder / "train.py").write_text(BEGIN + text)
    return observe_ranks(folder / "train.py", world_size=2, **how)


def notes(run: RankRun) -> str:
    assert run.observation.flow is not None
    return " ".join(run.observation.flow.assumed)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WAITS, 8),
        ("if rank == 1:\n    dist.irecv(x, 0).wait()\n", 8),
        ("if rank == 0:\n    dist.send(x, 1)\nelse:\n    dist.recv(x, 0)\n    dist.recv(x, 0)\n", 11),
        ("if rank == 0:\n    dist.send(x, 1, tag=3)\nelse:\n    dist.recv(x, 0, tag=4)\n", 10),
        (
            "if rank == 1:\n    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 0)])\n"
            "    works[0].wait()\n",
            8,
        ),
    ],
)
def test_a_tensor_that_is_never_sent_is_refused_with_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(InputError) as error:
        ranks_of(tmp_path, text)
    assert str(error.value).startswith("train.py, rank 1: found a tensor of rank 0 that is waited for at ")
    assert f"train.py:{line}: that rank has ended without sending it, expected ranks that" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)\n",
        "dist.send(x, 1) if rank == 0 else dist.irecv(x).wait()\n",
        "torch.set_default_device('cpu')\ndist.send(x, 1) if rank == 0 else dist.recv(x, 0)\n",
        "group = dist.new_group([0, 1])\n"
        "dist.send(x, 1, group) if rank == 0 else dist.recv(x, group=group, group_src=0)\n",
        "works = [dist.isend(x, rank), dist.irecv(torch.empty(4), rank)]\n",
        "assert dist.irecv(x, 0, group=dist.GroupMember.NON_GROUP_MEMBER) is None\n",
    ],
)
def test_what_arrives_is_not_mentioned(tmp_path: Path, text: str) -> None:
    for run in ranks_of(tmp_path, text):
        assert "waited for" not in notes(run) + notes(run)
        assert "received" not in notes(run)


def test_only_what_is_certain_is_refused(tmp_path: Path) -> None:
    """Rank 0 takes more than three steps, or goes by a value, or has data left: it may send later."""
    for last in (TRAIN, "print(x.sum().item())\n"):
        first, second = ranks_of(tmp_path, WAITS + last, ranks="all")
        assert "train.py:8 as sent: as far as it was run that rank sends none" in notes(second)
        assert "waited for" not in notes(first)
    loads = (
        "from torch.utils.data import DataLoader\nfor batch in DataLoader(range(9)):\n"
        "    dist.send(x, 1) if rank == 0 else None\nfor _ in range(9 * rank):\n    dist.recv(x, 0)\n"
    )
    assert "waited for" not in "".join(map(notes, ranks_of(tmp_path, loads)))
    # Of ranks that did not run nothing is known.
    (run,) = ranks_of(tmp_path, WAITS, ranks=[1])
    assert "waited for" not in notes(run)


def test_a_tensor_that_nobody_takes_is_noted(tmp_path: Path) -> None:
    first, second = ranks_of(tmp_path, "if rank == 0:\n    dist.send(x, 1)\n")
    assert "a tensor for rank 1 that is sent at " in notes(first)
    assert "train.py:8 as received: that rank ends without receiving it" in notes(first)
    assert "received" not in notes(second)


def test_messages_by_hand() -> None:
    """Rank 0 sends two to rank 1, which takes one of it and waits for one of rank 2, which was left."""
    ranks = {
        0: TensorMessages({"1//0": ["a", "b"]}, {}, whole=True),
        1: TensorMessages({}, {"0//0": ["c"], "2//0": ["d"]}, whole=True),
        2: TensorMessages({}, {}),
    }
    assert list(lost_tensors(ranks)) == [
        LostTensor(0, 1, "b", True, True),
        LostTensor(2, 1, "d", False, False),
    ]
    ranks[2].sent["1//0"] = ["e"]
    ranks[1].received["-1//0"] = ["of any"]
    assert list(lost_tensors(ranks)) == []


def test_a_tensor_of_whichever_rank_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"whichever rank has sent one at .*train.py:7, expected a rank"):
        ranks_of(tmp_path, "dist.recv(x)\n")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: dist.scatter(x, [x] * 3, src=1), "3 tensors as scatter_list for scatter among 2 ranks"),
        (lambda x: dist.gather(x, [x], dst=1), "1 tensors as gather_list"),
        (lambda x: dist.all_gather([x] * 3, x), "3 tensors as tensor_list"),
        (lambda x: dist.reduce_scatter(x, [x] * 4), "4 tensors as input_list"),
        (lambda x: dist.all_to_all([x] * 2, [x] * 3), "3 tensors as input_tensor_list"),
        (
            lambda x: dist.all_gather_into_tensor(torch.empty(9), x),
            "9 numbers as output_tensor",
        ),
        (lambda x: dist.reduce_scatter_tensor(torch.empty(3), x), "4 numbers as input"),
    ],
)
def test_what_is_not_of_each_rank_is_refused_with_the_line(call: Any, says: str) -> None:
    def given() -> None:
        dist.init_process_group("nccl")
        call(torch.rand(4))

    with fake_ranks(1, 2), pytest.raises(InputError, match=rf"{says}.* at .*test_rank_messages\.py:"):
        observe_fake(given)


def test_what_is_of_each_rank_is_taken() -> None:
    def given() -> None:
        dist.init_process_group("nccl")
        x = torch.rand(4)
        dist.scatter(x, [x] * 2, src=1)
        dist.scatter(x, [], src=0)
        dist.gather(x, None, dst=0)
        dist.all_gather([torch.empty(4), torch.empty(3)], x)
        dist.all_gather_into_tensor(torch.empty(2, 4), x)
        dist.all_to_all([x, x], [x, x])
        with pytest.warns(UserWarning, match="does not belong"):
            dist.all_gather([x] * 7, x, group=dist.GroupMember.NON_GROUP_MEMBER)

    with fake_ranks(1, 2):
        flow = observe_fake(given).flow
    assert flow is not None
    assert Category.ALL_GATHER in flow.storages.categories


@pytest.mark.parametrize("question", ["wait(['key'])", "get('key')", "set('key', '1')", "add('key', 1)"])
def test_the_store_of_a_group_is_asked_for_nothing(question: str, tmp_path: Path) -> None:
    text = f"from torch.distributed.distributed_c10d import _get_default_store as store\nstore().{question}\n"
    with pytest.raises(
        InputError, match=r"a question to the store .*train\.py:8: ranks leave nothing .*cast"
    ):
        ranks_of(tmp_path, text)
    ranks_of(
        tmp_path, "store = dist.PrefixStore('a', dist.HashStore())\nstore.set('key', '1')\nstore.get('key')\n"
    )


SYNCHRONIZED = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    x = torch.rand(2, 3, 4, 4, device="cuda"){last}
    with torch.autocast("cuda", torch.bfloat16, enabled={half}):
        model(x).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_batch_norm_over_ranks_makes_what_its_kernels_make(tmp_path: Path, last: bool, half: bool) -> None:
    """By aten/src/ATen/native/cuda/Normalization.cu: of 8 channels, on 3 ranks, 2 images of 4 × 4."""
    text = SYNCHRONIZED.format(last=".to(memory_format=torch.channels_last)" if last else "", half=half)
    (tmp_path / "train.py").write_text(text)
    first = observe_ranks(tmp_path / "train.py", world_size=3, device="cuda")[0].observation
    flow = first.flow
    assert flow is not None
    assert flow.steps == 3

    def made(kind: str) -> list[list[int]]:
        ops = [op for op, name in enumerate(first.ops.kinds) if name == kind]
        return [[int(flow.storages.nbytes[each]) for each in flow.makes[op]] for op in ops]

    channels, image = 8 * 4, 2 * 8 * 16 * (2 if half else 4)
    assert made("aten.batch_norm_stats") == [[channels] * 2] * 3
    # Counts, means and deviations of the ranks that have any rows: of each.
    assert made("aten.index") == [[3 * 4], [3 * channels], [3 * channels]] * 3
    assert made("aten.batch_norm_gather_stats_with_counts") == [[channels] * 2] * 3
    assert made("aten.batch_norm_elemt") == [[image]] * 3
    assert made("aten.batch_norm_backward_reduce") == [[channels] * 4] * 3
    assert made("aten.batch_norm_backward_elemt") == [[image]] * 3
