"""Who asked for the buffers of a recording, in memplan JSON: written, read back, capped, refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from memplan_engine import (
    InputError,
    Selection,
    choose_recording,
    find_peak,
    load,
    load_recording,
    make_problem,
    recorded_plan,
    write_json,
)
from memplan_engine.callers import Callers, Frame, Stacks
from memplan_engine.formats.memplan_json import callers_format
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.problem import select
from tests import ROOT

FRAMES = (
    Frame("at::_ops::mm::call(at::Tensor const&)", "??", 0),
    Frame("forward", "/home/me/train.py", 7),
    Frame("step", "/home/me/<b>train</b>.py", 9),
    Frame("unused", "x.py", 1),
)
STACKS = Stacks(FRAMES, ((3,), (0, 1), (0, 2, 1)))


def problem(stack=(1, -1, 2)):
    n = len(stack)
    return make_problem([0] * n, [2] * n, [8] * n, callers=Callers(np.array(stack, dtype=np.int64), STACKS))


def read(tmp_path, value):
    path = tmp_path / "problem.json"
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return load(path)


def test_only_what_some_buffer_has_is_written_each_once():
    assert json.loads(dumps(problem()))["callers"] == {
        "frames": [
            {"function": "at::_ops::mm::call(at::Tensor const&)", "file": "??"},
            {"function": "forward", "file": "/home/me/train.py", "line": 7},
            {"function": "step", "file": "/home/me/<b>train</b>.py", "line": 9},
        ],
        "stacks": [[0, 1], [0, 2, 1]],
        "stack": [0, -1, 1],
    }
    assert json.loads(dumps(select(problem(), np.array([1])))).get("callers") is None
    assert "callers" not in json.loads(dumps(make_problem([0], [1], [1])))


def test_what_was_written_is_read_back(tmp_path):
    found = read(tmp_path, dumps(problem()))
    assert found == problem()
    assert [found.callers.of(row) for row in range(3)] == [problem().callers.of(row) for row in range(3)]
    assert found.callers.stacks.frames_of(1) == (FRAMES[0], FRAMES[2], FRAMES[1])
    assert dumps(found) == dumps(problem())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stack": [0, 0]}, "field callers.stack: found 2 values, expected 3, one for each buffer"),
        ({"stack": [0, 0, 2]}, r"field callers.stack\[2\]: found 2, expected below 2"),
        ({"stack": [0, 0, -2]}, r"callers.stack\[2\]: found -2"),
        ({"stacks": [[0], [3]]}, r"field callers.stacks\[1\]: found 3, expected below 3"),
        ({"frames": []}, r"field callers.stacks\[0\]: found 1, expected below 0"),
        ({"frames": [{"function": "f" * 5000}]}, r"callers.frames\[0\].function"),
        ({"frames": [{"function": "f", "line": -1}]}, r"callers.frames\[0\].line: found -1"),
        ({"more": 1}, "callers.more: found an unknown field"),
    ],
)
def test_callers_that_are_not_sound_are_refused(tmp_path, change, told):
    value = json.loads(dumps(problem()))
    value["callers"] |= change
    with pytest.raises(InputError, match=told):
        read(tmp_path, value)


def test_sizes_are_capped_on_both_ways(tmp_path, monkeypatch):
    whole = dumps(problem())
    monkeypatch.setattr(callers_format, "MOST_CALLS", 4)
    with pytest.raises(InputError, match=r"callers.stacks: found 5 calls, expected 4 at most"):
        read(tmp_path, whole)
    # Two calls each remain, the innermost.
    assert json.loads(dumps(problem()))["callers"]["stacks"] == [[0, 1], [0, 2]]
    assert read(tmp_path, dumps(problem())).callers.stacks.frames_of(1) == (FRAMES[0], FRAMES[2])
    monkeypatch.setattr(callers_format, "MOST_CALLS", 1)
    assert "callers" not in json.loads(dumps(problem()))
    odd = Callers(np.zeros(1, dtype=np.int64), Stacks((Frame("f\ud800", "g" * 9999, -4),), ((0,),)))
    monkeypatch.setattr(callers_format, "MOST_CALLS", 9)
    (frame,) = read(tmp_path, dumps(make_problem([0], [1], [1], callers=odd))).callers.stacks.frames
    assert (frame.function, len(frame.file), frame.line) == ("f?", callers_format.MOST_LETTERS, 0)


def test_a_recorded_plan_on_disk_still_says_who_asked(tmp_path):
    snapshot = load_recording(ROOT / "example_graphs" / "cuda_snapshot.pickle")
    plan = recorded_plan(choose_recording(snapshot, Selection()))
    write_json(plan, tmp_path / "recorded.json")
    kept = load(tmp_path / "recorded.json")
    told, again = (find_peak(each.problem).contributors for each in (plan, kept))
    assert again == told
    assert str(again[0].provenance.source).startswith("/home/me/train.py:")
    write_json(kept, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "recorded.json").read_bytes()
