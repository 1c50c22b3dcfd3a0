"""The page Run: built-in models in a process of their own, files of runs, verdicts, curves, tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from memplan_dashboard.background import run_process
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import Asked, RunJob
from memplan_dashboard.background.scheduler import JobScheduler
from memplan_dashboard.charts import run_curves
from memplan_dashboard.session import documents, searches, uploads
from memplan_dashboard.views.run import run_choices

from memplan_engine import InputError, load_run
from memplan_engine.formats.memplan_json.run_format import RunFile
from tests.support.apptest import address, check, figure, open_app, widget
from tests.support.waiting import wait_until

RUN = {
    "format": "memplan/run",
    "version": 1,
    "name": "mine <b>",
    "ops": ["conv", "<b>relu</b>", "head"],
    "kinds": ["aten.conv2d", "aten.relu", "aten.linear"],
    "predicted": [4096, 8192, 100],
    "dispatch": [4096, 8192, 100],
    "allocator": [10240, 8192, 100],
    "temporaries": [
        {"op": "head", "kind": "aten.linear", "bytes": 90, "inside_bytes": 90},
        {"op": "conv", "kind": "aten.conv2d", "bytes": 6144},
    ],
    "plan": {"strategy": "naive", "arena_bytes": 12388, "bound_bytes": 8192},
    "slab": {
        "policy": "native",
        "bytes": 12388,
        "share": 0.5,
        "ways": [
            {"way": "native", "storages": 1, "bytes": 4096},
            {"way": "left", "storages": 3, "bytes": 8292},
        ],
        "left": [
            {"storage": "c", "op": "conv", "kind": "k", "bytes": 4096, "way": "left", "reason": "no out"},
            {"storage": "d", "op": "head", "kind": "k", "bytes": 4096, "way": "left", "reason": "no out"},
            {"storage": "e", "op": "head", "kind": "k", "bytes": 100, "way": "left", "reason": "returned"},
        ],
    },
    "equality": {"reference": "eager", "exact": True},
    "check": {"ops": 3, "compared_bytes": 2048, "arena_bytes": 12388, "guard": 64},
}
WRONG = {
    "equality": {"reference": "eager", "exact": False, "largest": 0.25, "output": "output[0]", "op": "conv"},
    "check": {"fault": "mine: op 'relu' reads buffer 'conv'"},
    "dispatch": [4096, 9216, 100],
}
OBSERVED = {
    "format": "memplan/observation",
    "version": 1,
    "ops": {"names": ["a"], "kinds": ["k"], "begin": [0], "end": [9]},
    "levels": {
        "allocator": {
            "time": [1, 2, 3], "size": [64, 32, -32], "address": [1, 2, 2], "op": [0] * 3, "inside": [1] * 3,
        }
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "session_is_alive", lambda session: True)
    monkeypatch.setattr("sys.argv", ["app.py"])
    run_choices.results().clear()


def texts(elements):
    return [each.value.replace("\\", "") for each in elements]


def upload(app, value, name="run.json"):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    app.file_uploader[0].upload(name, raw)
    return check(app.run())


def test_a_run_of_ones_own_opens_and_stays_in_the_address():
    app = upload(open_app("run"), RUN)
    key = address(app)["run"]
    assert key.startswith("run:")
    assert [figure(app, label) for label in ("Predicted peak", "Measured peak", "Allocator's peak")] == [
        "8 KiB", "8 KiB", "10 KiB",
    ]  # fmt: skip
    assert (
        next(each.delta for each in app.metric if each.label == "Measured peak")
        == "as predicted, to the byte"
    )
    assert figure(app, "Written in place") == "50.0 %"
    badges = " ".join(texts(app.markdown))
    assert "bitwise equal to eager" in badges
    assert "3 ops watched, 2 KiB compared, guards of 64 B: no fault" in badges
    again = open_app("run", run=key, tab="Left out")
    assert widget(again.selectbox, "Model or file").value == key
    grouped, each = (table.value for table in again.dataframe)
    assert grouped[["reason", "storages", "bytes"]].values.tolist() == [
        ["no out", 2, 8192],
        ["returned", 1, 100],
    ]
    assert each["op"].tolist() == ["conv", "head", "head"]
    taken = open_app("run", run=key, tab="Temporaries").dataframe[0].value
    assert taken["kernel scratch, bytes"].tolist() == [6144, 0]
    assert not [known for known in documents.catalogue() if known.startswith("run:")]


def test_what_is_wrong_is_told_in_full():
    app = upload(open_app("run"), RUN | WRONG)
    assert texts(app.error) == [
        "Result differs from eager by up to 0.25 in output[0], first at op conv",
        "Safety mode: mine: op 'relu' reads buffer 'conv'",
    ]
    told = next(each.delta for each in app.metric if each.label == "Measured peak")
    assert told.replace("\\", "") == "+1 KiB (+1,024 B)"


def test_an_observation_opens_as_a_run_without_a_prediction():
    app = upload(open_app("run"), OBSERVED, "seen.json")
    assert [(each.label, each.value) for each in app.metric] == [("Allocator's peak", "96 B")]
    assert "nothing was predicted" in " ".join(texts(app.markdown))
    assert "Counted: what one real run allocated" in " ".join(texts(app.caption)).replace("\\", "")


def test_devices_of_an_observation_are_shown_one_at_a_time(tmp_path):
    rows = {"time": [1, 2, 3], "size": [64, 4096, -4096], "address": [1, 2, 2], "device": [-1, 0, 0]}
    both = {"allocator": {**rows, "op": [0] * 3, "inside": [1] * 3}}
    both["dispatch"] = {"time": [1], "size": [32], "address": [1], "op": [0], "inside": [1]}
    app = upload(open_app("run"), OBSERVED | {"levels": both}, "seen.json")
    assert [(each.label, each.value) for each in app.metric] == [("Allocator's peak", "4 KiB")]
    assert address(app).get("run_device") is None
    app = open_app("run", run=address(app)["run"], run_device="-1")
    assert [(each.label, each.value) for each in app.metric] == [
        ("Measured peak", "32 B"), ("Allocator's peak", "64 B"),
    ]  # fmt: skip
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(OBSERVED | {"levels": both}))
    assert load_run(path).allocator == load_run(path, 0).allocator == (4096,)
    assert load_run(path, -1).allocator == (64,)
    with pytest.raises(InputError, match=r"seen\.json: device: found 3, expected one of -1, 0"):
        load_run(path, 3)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"format": "memplan/graph", "version": 1}, "expected memplan/run or memplan/observation"),
        (RUN | {"predicted": [1]}, "field predicted: found 1 values, expected 3"),
        ([1], "run.json"),
    ],
)
def test_another_file_is_refused_and_not_kept(value, told):
    app = upload(open_app("run"), value)
    assert told in texts(app.error)[0]
    assert uploads.listed("run") == {}
    assert "run" not in address(app)


@pytest.mark.parametrize("key", ["model:nope", "run:0123456789abcdef", "file:x", "nonsense", "run:../x"])
def test_nonsense_in_the_address_is_told(key):
    app = open_app("run", run=key, run_how="x,,check", run_strategy="<b>")
    assert len(app.error) == 1
    assert not app.metric


def test_files_of_the_command_line_are_listed_if_they_are_runs(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(RUN))
    (tmp_path / "b.csv").write_text("id,lower,upper,size\n0,0,1,4\n")
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "a.json"), str(tmp_path / "b.csv")])
    given = [key for key in run_choices.catalogue() if not key.startswith("model:")]
    assert given == ["file:a.json"]
    # Elsewhere there is nothing to open in it.
    assert documents.first_key() == "file:b.csv"
    assert "file:a.json" not in documents.catalogue()
    assert figure(open_app("run", run="file:a.json"), "Predicted peak") == "8 KiB"


STAND_IN = """
import sys
from pathlib import Path
from memplan_dashboard.background.server_pipes import open_pipes
from memplan_dashboard.background.solver_messages import read_message, write_message

commands, answers = open_pipes()
asked, _ = read_message(commands)
assert asked["model"] == "convolutions" and asked["check"], asked
write_message(answers, {"kind": "progress", "part": "planning"})
commands.read(1) if asked["profile"] else None
write_message(answers, {"kind": "done", "run": Path(__file__).with_suffix(".json").read_text()})
"""
"""A process that answers like `run_process` and runs no model."""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Runs of models are answered with RUN, those with a profile never."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "stand_in.json").write_text(json.dumps(RUN))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(RunJob, "PROCESS", "stand_in")


def finished(app):
    """`app` once its run has ended."""
    job = app.session_state["run_job"]
    wait_until(lambda: not job.state.is_active, look=lambda: (job.state, job.part, job.fault))
    return check(app.run())


def test_a_model_runs_in_a_process_of_its_own_and_the_result_stays(stand_in):
    app = open_app("run", run="model:convolutions", run_how="check")
    assert not app.metric
    widget(app.button, "Run").click()
    check(app.run())
    app = finished(app)
    assert texts(app.error) == []
    assert figure(app, "Predicted peak") == "8 KiB"
    # Another session sees it at once, and when it was; other options are another run.
    again = open_app("run", run="model:convolutions", run_how="check")
    assert figure(again, "Slab") == "12.1 KiB"
    assert [text for text in texts(again.caption) if text.startswith("Ran on ")]
    assert not open_app("run", run="model:convolutions").metric


def test_a_run_under_way_says_what_it_does_and_is_cancelled(stand_in):
    app = open_app("run", run="model:convolutions", run_how="check,profile")
    widget(app.button, "Run").click()
    check(app.run())
    job = app.session_state["run_job"]
    wait_until(lambda: job.part == "planning", look=lambda: (job.state, job.fault))
    check(app.run())
    widget(app.button, "Cancel").click()
    check(app.run())
    wait_until(lambda: job.process_id is None)
    assert (job.state, job.result, run_choices.results()) == (State.CANCELLED, None, {})
    assert not check(app.run()).metric


@pytest.mark.slow
def test_a_real_model_runs_in_a_process_of_its_own_and_is_checked():
    app = open_app("run", run="model:convolutions", run_how="check")
    widget(app.button, "Run").click()
    app = finished(check(app.run()))
    assert texts(app.error) == []
    found = run_choices.results()[Asked("convolutions", check=True)].run
    assert (found.passed, found.difference, found.check.fault) == (True, 0, "")
    assert max(found.predicted) == 2 * 64 * 48 * 48 * 4 * 4
    assert figure(app, "Predicted peak") == figure(app, "Slab") == "4.5 MiB"


def test_what_came_of_an_earlier_run_is_not_shown_as_that_of_the_one_under_way(monkeypatch):
    monkeypatch.setattr(RunJob, "run", lambda job: job._enter(State.RUNNING))
    earlier = RunFile.model_validate_json(json.dumps(RUN))
    at = datetime(2025, 3, 5, 14, 5, 12, tzinfo=UTC)
    run_choices.results()[Asked("perceptron")] = run_choices.Outcome(earlier, at, 3.21)
    monkeypatch.setattr(run_choices, "_visitors_zone", lambda: ZoneInfo("Asia/Tokyo"))
    app = open_app("run")
    assert "Ran on 2025-03-05 at 23:05:12, in 3.2 s." in texts(app.caption)
    assert figure(app, "Predicted peak") == "8 KiB"
    widget(app.button, "Run").click()
    check(app.run())
    assert widget(app.button, "Cancel")
    assert not app.metric
    # What the page shows of other options meanwhile says when it was.
    other = run_choices.results()[Asked("perceptron", check=True)] = run_choices.Outcome(earlier, at, 3.21)
    widget(app.checkbox, "Safety mode").check()
    check(app.run())
    assert other.told in texts(app.caption)
    widget(app.button, "Cancel").click()
    check(app.run())
    assert app.metric


def test_a_run_that_ends_while_nobody_looks_is_there_afterwards(monkeypatch):
    started = []
    monkeypatch.setattr(RunJob, "run", lambda job: (started.append(job), job._enter(State.RUNNING)))
    widget(open_app("run").button, "Run").click().run()
    # The page is loaded again; when it asks, the run has ended, and no scheduler knows it.
    (job,) = started
    job._hear({"kind": "done", "run": json.dumps(RUN)}, {})
    run_choices.scheduler().tick()
    assert figure(open_app("run"), "Predicted peak") == "8 KiB"


def test_models_are_listed_by_name_and_what_they_are_is_said_in_full():
    app = open_app("run")
    assert run_choices.catalogue()["model:perceptron"] == "perceptron"
    assert texts(app.caption)[-1].startswith(
        "Linear layers with a layer norm: all but the norm and what is returned is written in place. A small"
    )


@pytest.mark.parametrize("zone", [None, "", "../x", "Nope/Nope"])
def test_a_browser_in_no_time_zone_gets_the_servers(monkeypatch, zone):
    monkeypatch.setattr(run_choices, "st", SimpleNamespace(context=SimpleNamespace(timezone=zone)))
    assert run_choices._visitors_zone() is None


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.csv", b"id,lower,upper,size\na,0,4,10\n", "a.csv: found broken JSON"),
        ("rnd.bin", b"\xff\xfe\x00", "rnd.bin: line 1, byte 0: found 0xff, expected text in UTF-8"),
    ],
)
def test_a_file_that_is_no_run_is_told_so_beside_the_control(name, content, found):
    app = upload(upload(open_app("run"), RUN), content, name)
    (told,) = texts(app.error)
    assert told.startswith(found)
    assert (
        "Only a run or an observation in JSON can be opened here. What was open before is still shown below."
        in told
    )
    assert figure(app, "Predicted peak") == "8 KiB"
    assert list(uploads.listed("run").values()) == ["run.json"]


def test_the_allocators_peak_says_what_it_is_measured_by():
    app = upload(open_app("run"), RUN | {"allocator": [4096, 8192, 100]})
    told = {each.label: each.delta for each in app.metric}
    assert told["Allocator's peak"] == "as predicted"
    app = upload(open_app("run"), RUN)
    assert {each.label: each.delta for each in app.metric}["Allocator's peak"].replace("\\", "") == (
        "+2 KiB (+2,048 B)"
    )


def test_what_the_address_asks_of_a_run_and_is_none_is_said():
    app = open_app("run", run_strategy="foo", run_how="check,fast")
    assert texts(app.warning) == [
        "run_strategy: found 'foo', expected one of those in the list. This is auto. "
        "run_how: found 'fast', expected some of all, functional, check, profile, order."
    ]
    assert not open_app("run", run_strategy="naive", run_how="check").warning


def test_options_go_into_the_address():
    app = open_app("run")
    widget(app.checkbox, "Safety mode").check()
    widget(app.checkbox, "Everything in the slab").check()
    check(app.run())
    widget(app.selectbox, "Strategy").set_value("naive")
    check(app.run())
    assert address(app) == {"run_how": "all,check", "run_strategy": "naive"}


def test_a_run_is_cancelled_and_its_process_is_gone():
    scheduler = JobScheduler(lambda session: True, most=1)
    job, other = RunJob("one", Asked("perceptron")), RunJob("two", Asked("perceptron"))
    scheduler.submit(job)
    scheduler.submit(other)
    assert (job.state, other.state) == (State.RUNNING, State.WAITING)
    assert scheduler.before(other) == 0
    other.cancel()
    wait_until(lambda: job.process_id is not None)
    job.cancel()
    wait_until(lambda: job.process_id is None)
    assert (job.state, job.process_id, job.result) == (State.CANCELLED, None, None)
    scheduler.close()


def test_a_run_that_takes_too_long_is_ended_and_says_so():
    job = RunJob("one", Asked("perceptron"), until=7.0)
    job.run()
    job.suspend()
    assert (job.state, job.fault) == (State.FAILED, "ended after 7 s: `memplan run` has no time limit")


def test_why_transformers_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(run_choices, "find_spec", lambda name: None if name == "transformers" else name)
    app = open_app("run", run="model:gpt2")
    assert texts(app.warning) == [
        "gpt2 needs transformers, which is not installed: pip install 'memplan[examples]'"
    ]
    assert widget(app.button, "Run").disabled
    assert run_choices.missing("perceptron") == ""


def test_only_built_in_models_are_run():
    job = RunJob("one", Asked("os:getcwd"))
    job.state = State.RUNNING
    job._hear({"kind": "error", "message": "x"}, {})
    assert (job.state, job.fault) == (State.FAILED, "x")
    with pytest.raises(
        run_process.MemplanError, match=r"model: found 'os:getcwd', expected one of perceptron"
    ):
        run_process.run_model({"model": "os:getcwd"}, print)


def test_the_curves_are_steps_with_a_marker_at_each_peak():
    run = RunFile.model_validate_json(json.dumps(RUN | {"dispatch": [4096, 8192 + 12, 100]}))
    curves = run_curves.data(run)
    assert [(line.name, line.peak_step, line.peak_bytes, line.difference) for line in curves.lines] == [
        ("predicted", 1, 8192, None), ("dispatch", 1, 8204, 12), ("allocator", 0, 10240, 2048),
    ]  # fmt: skip
    chart = run_curves.figure(curves)
    lines, marks = chart.data[:3], chart.data[3:]
    assert [line.line.shape for line in lines] == ["hv"] * 3
    assert (lines[0].x, lines[0].y) == ((0, 1, 2, 3), (4096, 8192, 100, 100))
    assert lines[0].customdata[1][0] == "&lt;b&gt;relu&lt;/b&gt; (aten.relu)"
    assert [mark.text[0] for mark in marks] == ["", "+12 B", "+2 KiB (+2,048 B)"]
    assert [mark.x[0] for mark in marks] == [1.5, 1.5, 0.5]


def test_long_curves_keep_their_peaks(monkeypatch):
    monkeypatch.setattr(run_curves, "MOST_POINTS", 2)
    run = RunFile.model_validate_json(json.dumps(RUN))
    (line, *_) = run_curves.data(run).lines
    assert (line.steps, line.bytes, line.ops[0]) == ((1, 2), (8192, 100), "<b>relu</b> (aten.relu)")


def test_all_parts_that_a_run_tells_of_have_their_place(tmp_path):
    told = []
    asked = {"model": "perceptron", "strategy": "naive", "policy": "all", "functional": False}
    (tmp_path / "run.json").write_bytes(
        run_process.run_model({**asked, "check": True, "profile": False, "order": True}, told.append)
    )
    assert told == [part for part in run_choices.PARTS if part != "timing"]
    assert load_run(tmp_path / "run.json").passed
