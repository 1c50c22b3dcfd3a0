"""Offline plans in TensorFlow Lite models: written, read back by hand, and refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memplan_engine import Graph, InputError, Plan, load, make_plan, make_problem
from memplan_engine.files import ImportOptions, write
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.verify.validate import validate_plan
from tests.support.tflite_models import small

HOW = Preparation(alignment=16, plan_inputs=True)
AS_PLAN = ImportOptions(offsets_as_plan=True)


def planned(path: Path, strategy: str = "auto", how: Preparation = HOW) -> Plan:
    return make_plan(prepare(load(path), how), strategy)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "net.tflite").write_bytes(small(more=[("min_runtime_version", b"1.5.0\0\0\0")]))
    return tmp_path / "net.tflite"


def numbers_of(data: bytes, name: bytes = b"OfflineMemoryAllocation") -> list[list[int]]:
    """The plans in a file, found by what they begin with, not by its tables: 1 or 0, 1 subgraph, 6
    tensors."""
    found = []
    for at in range(0, len(data) - 36, 4):
        numbers = struct.unpack_from("<10i", data, at)
        if numbers[0] == 36 and numbers[1] in (0, 1) and numbers[2:4] == (1, 6):
            found.append(list(numbers[4:]))
    return found


def test_the_offsets_stand_in_the_file_and_all_else_stays(net: Path, tmp_path: Path) -> None:
    plan = planned(net)
    write(plan, tmp_path / "planned.tflite", net)
    data = (tmp_path / "planned.tflite").read_bytes()
    at = dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True))
    # The weight and what keeps its content are not planned.
    assert numbers_of(data) == [[at["x"], -1, at["hidden#0.2"], at["hidden#0.3"], at["y"], -1]]
    assert data.endswith(net.read_bytes())
    assert data[4:8] == b"TFL3"
    again = load(tmp_path / "planned.tflite")
    assert replace(again, name="net") == load(net)
    assert b"min_runtime_version" in data
    back = load(tmp_path / "planned.tflite", AS_PLAN)
    assert isinstance(back, Plan)
    assert back.offsets.tolist() == plan.offsets.tolist()
    assert validate_plan(back).valid
    # A second plan takes the place of the first, in what a reader finds.
    write(
        planned(tmp_path / "planned.tflite", "naive"), tmp_path / "naive.tflite", tmp_path / "planned.tflite"
    )
    naive = load(tmp_path / "naive.tflite", AS_PLAN)
    assert isinstance(naive, Plan)
    assert naive.arena_bytes == 16 + 32 + 32 + 16 > plan.arena_bytes


def test_the_content_of_the_plan_is_aligned(net: Path, tmp_path: Path) -> None:
    write(planned(net), tmp_path / "planned.tflite", net)
    data = (tmp_path / "planned.tflite").read_bytes()
    place = next(at for at in range(0, len(data), 4) if struct.unpack_from("<4i", data, at) == (36, 1, 1, 6))
    assert (place + 4) % 16 == 0


def test_a_plan_that_leaves_something_to_the_runtime_is_none(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(small([1, 1, 6, -1, -1, 0, 32, 64, -1]))
    assert isinstance(load(path, AS_PLAN), Graph)
    path.write_bytes(small([0, 1, 6, 96, -1, 0, 32, 0, -1]))
    plan = load(path, AS_PLAN)
    assert isinstance(plan, Plan)
    assert dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True)) == {
        "x": 96, "hidden#0.2": 0, "hidden#0.3": 32, "y": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    "plan",
    [
        [1, 1, 6, 0, 0],
        [1, 1, 5, 0, 0, 0, 0, 0, 0],
        [2, 1, 6, 0, 0, 0, 0, 0, 0],
        [1, 1, 6, 0, 0, 0, 0, 0, -2],
        [],
    ],
)
def test_a_plan_of_another_length_is_refused_as_a_plan_and_the_graph_is_read(
    tmp_path: Path, plan: list[int]
) -> None:
    (tmp_path / "net.tflite").write_bytes(small(plan))
    with pytest.raises(InputError, match="metadata OfflineMemoryAllocation"):
        load(tmp_path / "net.tflite", AS_PLAN)
    assert isinstance(load(tmp_path / "net.tflite"), Graph)


def test_what_the_runtime_would_not_run_is_refused_and_nothing_is_written(net: Path, tmp_path: Path) -> None:
    target, graph = tmp_path / "planned.tflite", load(net)
    assert isinstance(graph, Graph)
    other = replace(graph, ops=(replace(graph.ops[0], name="nobody"), *graph.ops[1:]))
    sides = make_plan(prepare(graph, replace(HOW, streams=1)))
    for wrong, said in (
        (make_plan(make_problem([0], [1], [16])), "a plan of buffers"),
        (make_plan(prepare(other, HOW)), "a plan with other ops"),
        (planned(net, "naive", replace(HOW, alignment=4)), "multiples of 16"),
        (replace(planned(net), offsets=np.array([2**31, 0, 0, 0])), "an arena below"),
    ):
        if said == "multiples of 16":
            wrong = replace(wrong, offsets=wrong.offsets + 4)
        with pytest.raises(InputError, match=said):
            write(wrong, target, net)
    assert not target.exists()
    write(sides, target, net)
    with pytest.raises(InputError, match=r"the suffix '.onnx', expected .json or .csv or .tflite"):
        write(planned(net), tmp_path / "net.onnx", net)
