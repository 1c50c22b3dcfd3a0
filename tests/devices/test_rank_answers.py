"""Ranks on devices: the fullest, verdicts at the limits, a folder read again. Worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memplan_engine import InputError
from memplan_engine.accelerators.presets import CONTEXT, NCCL, accelerator
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.devices.rank_answers import device_answers
from memplan_engine.formats.memplan_json import ranks_folder
from memplan_engine.formats.memplan_json.ranks_folder import load_ranks, write_ranks
from memplan_engine.graph import Source
from memplan_engine.recordings.observation import Level, Observation, ObservedOps, flow_changes
from memplan_engine.recordings.observed_flow import Category, Flow, ObservedStorages, Stage
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.reporters.devices.device_tables import devices_summary, written
from memplan_engine.verdict import Reason, Verdict

MIB = 1 << 20
GPU = accelerator("h100-80")


def seen(nbytes: int) -> Observation:
    """A weight of 100 MiB that was there, and what an op makes and keeps, on a card."""
    numbers = {name: np.zeros(1, np.int64) for name in ("begin", "end")}
    ops = ObservedOps(("gather",), ("c10d.allgather",), **numbers, stack=np.full(1, -1))
    kinds = (Category.WEIGHT, Category.ALL_GATHER)
    storages = ObservedStorages(
        names=("w", ""),
        nbytes=np.array([100 * MIB, nbytes]),
        categories=kinds,
        maker=np.array([-1, 0]),
        released=np.array([-1, -1]),
        shapes=((1,), (1,)),
        dtypes=("float32", "float32"),
        device=np.zeros(2, np.int64),
    )
    flow = Flow(
        *(((0,),), ((),), ((1,),), (Stage.FORWARD,), ("",), np.zeros(1, np.int64)),
        *((Source("train.py", 7, "x"),), np.zeros(1, np.int64), np.zeros(1, np.int64), storages),
        assumed=("a card",),
    )
    return Observation("train.py", ops, {Level.DISPATCH: flow_changes(flow, ops)}, flow=flow)


def runs(*sizes: int) -> list[RankRun]:
    return [
        RankRun(2 * at, 2 * len(sizes), seen(size * MIB), (2 * at, 2 * at + 1), (at,), 1)
        for at, size in enumerate(sizes)
    ]


def test_the_fullest_rank_and_what_lies_beside() -> None:
    answers = device_answers(runs(20, 300, 40), GPU)
    assert [each.answers.live_bytes for each in answers.ranks] == [120 * MIB, 400 * MIB, 140 * MIB]
    assert [each.reserved_bytes for each in answers.ranks] == [120 * MIB, 400 * MIB, 140 * MIB]
    assert answers.fullest.run.rank == 2
    # One communicator, one stream's workspaces of 32 to 64 MiB.
    beside = CONTEXT.least_bytes + NCCL.least_bytes + 32 * MIB
    assert answers.fullest.total_bytes[0] == 400 * MIB + beside
    assert answers.fullest.total_bytes[1] == 400 * MIB + CONTEXT.most_bytes + NCCL.most_bytes + 64 * MIB
    assert answers.fullest.peak == ("gather (forward)", "train.py:7")
    assert "assumed: a card" in answers.notes


def test_verdicts_at_the_limits() -> None:
    left = GPU.usable_bytes // MIB - 100
    least = -(-(CONTEXT.least_bytes + NCCL.least_bytes) // MIB) + 32
    most = -(-(CONTEXT.most_bytes + NCCL.most_bytes) // MIB) + 64
    sizes = (left - most - 4, left - least - 4, left - least + 4)
    found = [each.verdict for each in device_answers(runs(*sizes), GPU).ranks]
    assert found == [Verdict.FITS, Verdict.UNDECIDED, Verdict.DOES_NOT_FIT]


def test_the_python_of_a_compiled_run_decides_nothing() -> None:
    compiled = []
    for run in runs(20, 300_000):
        flow = run.observation.flow
        assert flow is not None
        seen = replace(run.observation, flow=replace(flow, compiled=True))
        compiled.append(replace(run, observation=seen))
    answers = device_answers(compiled, GPU)
    assert {(each.verdict, each.reason) for each in answers.ranks} == {(Verdict.UNDECIDED, Reason.COMPILED)}


def test_for_machines() -> None:
    said = devices_summary(device_answers(runs(20, 300), GPU), GPU)
    assert (said["fullest_rank"], said["verdict"], said["world_size"]) == (2, "fits", 4)
    row = said["ranks"][1]
    assert (row["rank"], row["ranks"], row["stages"]) == (2, [2, 3], [1])
    assert row["reserved_bytes"] == {"native": 400 * MIB, "expandable_segments:True": 400 * MIB}
    assert row["basis"] == {"native": "simulated", "expandable_segments:True": "rules only"}
    assert row["categories"] == {"all-gather": 300 * MIB, "weight": 100 * MIB}
    assert [each["name"] for each in row["beside"]][1] == "NCCL buffers"
    assert row["peak_source"] == "train.py:7"


def test_settings_that_are_asked_about_come_first() -> None:
    settings = parse_settings("expandable_segments:True")
    (answer,) = device_answers(runs(20), GPU, settings).ranks
    assert answer.answers.chosen.run.is_rules_only
    assert not answer.answers.others


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_ranks(runs(20, 300), tmp_path / "ranks")
    read = load_ranks(tmp_path / "ranks")
    assert [(each.rank, each.ranks, each.stages, each.groups) for each in read] == [
        (0, (0, 1), (0,), 1),
        (2, (2, 3), (1,), 1),
    ]
    both = [devices_summary(device_answers(each, GPU), GPU) for each in (runs(20, 300), read)]
    assert both[0] == both[1]


def test_a_folder_that_is_cut_short_names_no_observations_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ranks(runs(20, 300), tmp_path)

    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks_folder, "write_observation", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_ranks(runs(40, 600), tmp_path)
    with pytest.raises(InputError, match=r"no ranks\.json"):
        load_ranks(tmp_path)


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[]",
        '{"format": "memplan/ranks", "version": 2, "ranks": []}',
        '{"format": "memplan/ranks", "version": 1, "world_size": 2, "ranks": []}',
        '{"format": "memplan/ranks", "version": 1, "world_size": 2, "ranks": [{"file": "a"}]}',
        json.dumps(
            {
                "format": "memplan/ranks",
                "version": 1,
                "world_size": 2,
                "ranks": [{"file": "../a.json", "rank": 0, "ranks": [0], "stages": [], "groups": 0}],
            }
        ),
    ],
)
def test_a_broken_folder_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "ranks.json").write_text(index)
    with pytest.raises(InputError):
        load_ranks(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        write_ranks(runs(20), tmp_path / "file")
    with pytest.raises(InputError, match=r"no ranks\.json"):
        load_ranks(tmp_path)


def test_ranks_in_words() -> None:
    assert written([3]) == "3"
    assert written([0, 1]) == "0, 1"
    assert written([0, 1, 2, 7]) == "0 to 2, 7"
    assert written([0, 8, 16, 24]) == "0 to 24 by 8"
    assert written([0, 2, 3, 4]) == "0, 2 to 4"


def test_each_process_group_counts_by_its_size(tmp_path: Path) -> None:
    (run,) = runs(20)
    run = replace(run, world_size=8, groups=3, group_sizes=(2, 4, 4))
    write_ranks([run], tmp_path / "ranks")
    (again,) = load_ranks(tmp_path / "ranks")
    (answer,) = device_answers([again], GPU).ranks
    # One group of two with 544 MiB at least, two of four with 688; a context, and workspaces of 32 MiB.
    assert answer.total_bytes[0] == (120 + 544 + 2 * 688 + 300 + 32) * MIB
    assert answer.total_bytes[1] == (120 + 3 * 1600 + 1100 + 64) * MIB
    (row,) = devices_summary(device_answers([again], GPU), GPU)["ranks"]
    assert [each["name"] for each in row["beside"]][1:3] == [
        "NCCL buffers, a group of 2",
        "NCCL buffers, a group of 4",
    ]
    index = tmp_path / "ranks" / "ranks.json"
    index.write_text(index.read_text().replace('"groups": 3', '"groups": 2'))
    with pytest.raises(InputError, match="group_sizes"):
        load_ranks(tmp_path / "ranks")
