"""A search over commits as a job of the page History: what it tells, what it refuses, and an end."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("sqlalchemy")
from memplan_dashboard.background.bisect_job import BisectAsked, BisectJob
from memplan_dashboard.background.bisect_process import bisect
from memplan_dashboard.background.jobs import State

from memplan_engine import InputError, measure_graph, open_history
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.runtime.scripts import factory_capture
from tests.support.repository import Repository
from tests.support.traced import Node, traced


def graph(width):
    return traced([Node("a", "linear", width), Node("b", "relu", width, ("a",))])[0]


def captured(request, seconds, stop=None):
    """What stands for a capture: the width that `parts.py` of the commit says."""
    return dumps(graph(int((request.top / "parts.py").read_text())))


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Six commits, of which the fourth needs more."""
    monkeypatch.setattr(factory_capture, "capture_apart", captured)
    made = Repository(tmp_path / "zoo")
    for number, width in enumerate((64, 64, 64, 256, 256, 256)):
        made.commit(net="", parts=f"{width}\n", other=f"# {number}\n")
    line = made.git("log", "--reverse", "--format=%H").split()
    series = measure_graph(graph(64), project="zoo", model="net", variant="batch 8").series
    what = BisectAsked(
        str(tmp_path / "history.db"), str(made.folder), "net.py:net", line[0], line[-1], "main",
        series.project, series.model, series.variant, series.strategy, series.options,
    )  # fmt: skip
    return what, line


def test_it_tells_of_each_commit_and_names_the_one_to_blame(asked):
    what, line = asked
    told = []
    sentences = bisect(what, told.append)
    assert line[3][:12] in sentences[0]
    assert sentences[0].endswith("(to look at)")
    assert told[0] == f"capturing {line[0][:7]} and {line[-1][:7]}"
    assert told[1].startswith("1 looked at, the last ")
    assert told[-1].split(" ")[0] == str(len(told) - 1)
    with open_history(what.location, read_only=True) as history:
        recorded = {point.run.commit for point in history.points(what.series)}
    assert {line[0], line[2], line[3], line[-1]} <= recorded


def test_points_of_another_series_are_refused(asked):
    what, _ = asked
    with pytest.raises(InputError, match=r"points of net \(batch=8\), expected one that makes net, planned"):
        bisect(replace(what, variant="", factory="net.py:net(batch=8)"), str)
    assert not Path(what.location).exists()


def test_what_fails_is_said_and_a_cancelled_one_leaves_no_process(tmp_path, asked):
    what, _ = asked
    jobs = [BisectJob("a session", replace(what, folder=str(tmp_path))) for _ in range(2)]
    jobs[1].run()
    while jobs[1].process_id is None:
        time.sleep(0.01)
    process = jobs[1]._process
    jobs[1].cancel()
    assert process.poll() is not None
    assert jobs[1].state is State.CANCELLED
    jobs[0].run()
    end = time.monotonic() + 60
    while jobs[0].state.is_active and time.monotonic() < end:
        time.sleep(0.05)
    assert jobs[0].state is State.FAILED
    assert "found no repository, expected a folder in the work tree of one" in jobs[0].fault
