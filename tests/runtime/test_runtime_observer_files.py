"""Observations as files: memplan JSON, traces for Perfetto, and what the command line makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memplan_engine import (
    InputError,
    Level,
    Observation,
    find_peak,
    load,
    load_observation,
    load_recording,
    observed_peak,
    observed_problem,
    recorded_plan,
    recording_problem,
    validate_plan,
    write_observation,
    write_observation_trace,
)
from memplan_engine.callers import Frame, Stacks
from memplan_engine.files import recognise
from memplan_engine.formats.memplan_json.observation_file import observation_bytes, trace_of
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.recordings.observation import CHANGE, ObservedOps


def changes(rows: list[tuple[int, int, int, int, int]]) -> Any:
    """Rows of (time, size, address, op, inside) on the CPU."""
    made = np.zeros(len(rows), dtype=CHANGE)
    for name, column in zip(
        ("time", "size", "address", "op", "inside"), zip(*rows, strict=True), strict=True
    ):
        made[name] = column
    made["device"], made["kernel"] = -1, -1
    return made


@pytest.fixture
def observation() -> Observation:
    """`conv` makes 4,096 bytes and takes 1,024 for itself; `relu` makes as much, and `conv`'s goes."""
    ops = ObservedOps(
        ("conv", "relu"),
        ("aten.conv2d", "aten.relu"),
        *(np.array(c) for c in ([1000, 5000], [3000, 9000], [0, -1])),
    )
    allocator = changes(
        [
            (1100, 4096, 1 << 20, 0, 1),
            (1200, 1024, 2 << 20, 0, 1),
            (2900, -1024, 2 << 20, 0, 1),
            (6000, 4096, 2 << 20, 1, 1),
            (9500, -4096, 1 << 20, 1, 0),
        ]
    )
    allocator["kernel"][:2] = [-1, 0]
    dispatch = changes(
        [(3000, 4096, 1 << 20, 0, 1), (9000, 4096, 2 << 20, 1, 1), (9500, -4096, 1 << 20, 1, 0)]
    )
    stacks = Stacks((Frame("forward", "/home/me/net.py", 12),), ((0,),))
    levels = {Level.DISPATCH: dispatch, Level.ALLOCATOR: allocator}
    return Observation("net", ops, levels, ("aten::mkldnn_convolution",), stacks, 10_000)


def test_json_is_read_back_as_it_was(observation: Observation, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write_observation(observation, path)
    found = load_observation(path)
    assert observation_bytes(found) == path.read_bytes()
    assert (found.name, found.ops.names, found.kernels, found.nanoseconds) == (
        "net", ("conv", "relu"), ("aten::mkldnn_convolution",), 10_000
    )  # fmt: skip
    for level in Level:
        assert found.changes[level].tolist() == observation.changes[level].tolist()
    assert found.stacks.frames_of(0) == (Frame("forward", "/home/me/net.py", 12),)
    assert found.ops.stack.tolist() == [0, -1]
    assert observed_peak(found, "allocator") == (8192, 1)


def test_it_opens_as_any_other_file(observation: Observation, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write_observation(observation, path)
    assert recognise(path).name == "observation"
    problem = load(path)
    assert isinstance(problem, Problem)
    assert problem.names == ("conv", "conv temporary", "relu")
    assert problem == observed_problem(observation)
    assert find_peak(problem).nbytes == 8192
    (recording,) = load_recording(path).recordings
    plan = recorded_plan(recording)
    assert isinstance(plan, Plan)
    assert validate_plan(plan).valid
    assert problem.callers is not None
    assert str(problem.callers.of(0).source) == "/home/me/net.py:12"


def test_the_command_line_plans_it(
    observation: Observation, tmp_path: Path, memplan: Callable[..., tuple[int, str, str]]
) -> None:
    path = tmp_path / "net.json"
    write_observation(observation, path)
    code, out, _ = memplan("plan", str(path), "--strategy", "greedy_by_size", "--json")
    assert (code, json.loads(out)["arena_bytes"]) == (0, 8192)
    code, out, _ = memplan("snapshot", str(path), "--strategy", "greedy_by_size", "--json")
    assert (code, json.loads(out)["peak_live"]["live_bytes"]) == (0, 8192)
    path.write_text(path.read_text().replace('"op":[0,0,0,1,1]', '"op":[0,0,2,1,1]'))
    code, _, err = memplan("plan", str(path))
    assert (code, err) == (2, "memplan: net.json: field levels.allocator.op[2]: found 2, expected below 2\n")


def test_a_trace_has_ranges_instants_and_counters(observation: Observation, tmp_path: Path) -> None:
    events = trace_of(observation)["traceEvents"]
    ranges = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert ranges == [("conv", 1.0, 2.0), ("relu", 5.0, 4.0)]
    counters = [e for e in events if e["ph"] == "C"]
    assert [e["args"]["bytes"] for e in counters if "allocator" in e["name"]] == [
        4096,
        5120,
        4096,
        8192,
        4096,
    ]
    assert [e["args"]["bytes"] for e in counters if "dispatch" in e["name"]] == [4096, 8192, 4096]
    instants = [e for e in events if e["ph"] == "i" and e["name"] == "[memory]"]
    assert [e["args"]["Bytes"] for e in instants] == [4096, 1024, -1024, 4096, -4096]
    assert instants[1]["args"]["operator"] == "aten::mkldnn_convolution"
    assert (instants[0]["args"]["op"], instants[4]["args"]["after op"]) == ("conv", "relu")
    assert [e["ts"] for e in events[1:]] == sorted(e["ts"] for e in events[1:])
    path = tmp_path / "trace.json"
    write_observation_trace(observation, path)
    (recording,) = load_recording(path).recordings
    problem, expected = recording_problem(recording), observed_problem(observation)
    for column in ("start", "end", "size"):
        assert getattr(problem, column).tolist() == getattr(expected, column).tolist()
    assert problem.names[0] == "conv #1"


def edited(observation: Observation, tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    path = tmp_path / "net.json"
    value = json.loads(observation_bytes(observation))
    edit(value)
    path.write_text(json.dumps(value))
    return path


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets one field."""

    def edit(document: dict[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("version", value=3), "field version: found 3, expected 1 to 2, all that this memplan can read"),
        (put("format", value="memplan/plan"), "field format: found 'memplan/plan', expected memplan/obs"),
        (put("extra", value=1), "field extra: found an unknown field"),
        (put("levels", value={}), "field levels: found no level"),
        (put("ops", "begin", value=[1]), r"field ops.begin: found 1 values, expected 2"),
        (put("ops", "names", value=["a", "a"]), "field ops.names: found 'a' twice"),
        (put("ops", "stack", value=[1, -1]), r"field ops.stack\[0\]: found 1, expected below 1"),
        (put("stacks", value=[[3]]), r"field stacks\[0\]\[0\]: found 3, expected below 1"),
        (put("levels", "dispatch", "op", value=[1, 0, 1]), r"dispatch.op\[1\]: found 0 after 1"),
        (put("levels", "dispatch", "op", value=[-1, 1, 1]), r"dispatch.inside\[0\]: found 1 without an op"),
        (put("levels", "dispatch", "size", 0, value=0), r"dispatch.size\[0\]: found 0"),
        (put("levels", "allocator", "kernel", value=[0, 0, 0, 0, 5]), r"kernel\[4\]: found 5"),
        (put("levels", "dispatch", "time", value=[1.5, 2, 3]), r"time\[0\]: found 1.5"),
    ],
)
def test_a_file_that_is_not_sound_says_where(
    observation: Observation, tmp_path: Path, edit: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_observation(edited(observation, tmp_path, edit))


def test_sizes_that_cannot_be_added_up(observation: Observation, tmp_path: Path) -> None:
    path = edited(observation, tmp_path, put("levels", "allocator", "size", 0, value=2**62 + 1))
    with pytest.raises(InputError, match=r"net.json: field levels.allocator.size: found sizes that sum to"):
        load(path)
    with pytest.raises(InputError, match="names in Unicode"):
        write_observation_trace(replace(observation, name="\ud800"), tmp_path / "trace.json")
