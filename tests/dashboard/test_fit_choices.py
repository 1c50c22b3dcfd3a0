"""What a visitor of the page Fit has to ask for: copies to the host, for one capacity, and pieces."""

from __future__ import annotations

import json
import shlex

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.fit_job import FitJob, _read_stage, stage_values
from memplan_dashboard.session import fitting, searches

from memplan_engine import accelerator, fit_graph
from memplan_engine.analysis.op_costs import OpWork, modelled_times, op_seconds
from memplan_engine.analysis.torch_budgets import TorchBudget
from memplan_engine.fitting.fitted import CHOICES
from memplan_engine.formats.memplan_json.graph_format import About, BudgetEntry
from memplan_engine.formats.memplan_json.json_file import dumps, write_json
from memplan_engine.strategies.base import SolveLimits
from tests.dashboard.fit_graphs import MIB, layers
from tests.dashboard.test_dashboard_fit import ended, fit_page, headline, table
from tests.rewrites.chunk.test_chunk_by_hand import wide
from tests.support.apptest import address, check, open_app, said, upload, widget

COPIES = "in_place,reorder,gradients,recompute,offload"


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(searches, "session_is_alive", lambda session: True)
    monkeypatch.setattr("sys.argv", ["app.py"])
    fitting.results().clear()
    yield
    searches.scheduler().close()


def uploaded(graph):
    return address(upload(open_app("import"), "net.json", dumps(graph)))["doc"]


def test_copies_are_looked_for_when_there_is_a_capacity(memplan, tmp_path, monkeypatch):
    doc = uploaded(layers())
    app = fit_page(doc=doc, stages=COPIES)
    assert headline(app).startswith("Needs 22 MiB: as captured")
    (base,) = fitting.results()
    assert (base.capacity, "offload" in base.only) == (None, False)
    widget(app.text_input, "Capacity").set_value("9MiB")
    check(app.run())
    ended(app)
    check(app.run())
    assert [each.capacity for each in fitting.results()] == [None, 9 * MIB]
    assert headline(app).startswith("Fits in 9 MiB: copies to the host, 1 MiB state + 8 MiB arena, +")
    rows = table(app)
    assert rows["stage"].tolist()[-2:] == ["ops run again", "copies to the host"]
    assert rows["arena"].tolist()[-1] == 8 * MIB
    fitted = fit_graph(
        layers(), 9 * MIB, times=modelled_times(layers(), accelerator("h100-80")), limits=SolveLimits(10)
    )
    copied = fitted.stages[-1].copied_bytes
    assert any(f"Copy {copied // MIB} MiB to the host and back, +" in text for text in said(app.markdown))
    waits = next(each.value for each in app.dataframe if "gone from" in each.value.columns)
    assert waits["bytes"].sum() == copied
    assert (waits["to the host at"] < waits["gone from"]).all()
    assert (waits["gone from"] <= waits["back at"]).all()
    # The command line says the same.
    command = app.code[-1].value
    assert "--only" not in command
    (tmp_path / "net.json").write_bytes(dumps(layers()))
    monkeypatch.chdir(tmp_path)
    code, out, _ = memplan(*shlex.split(command)[1:])
    assert (code, "Fits in 9 MiB: copies to the host" in out) == (0, True), out


def test_no_copies_where_what_was_found_takes_no_longer(monkeypatch):
    begun = []
    begin = fitting.begin
    monkeypatch.setattr(fitting, "begin", lambda asked, *rest: begun.append(asked) or begin(asked, *rest))
    doc = uploaded(layers())
    for capacity in ("30MiB", "0.5MiB"):
        app = fit_page(doc=doc, stages=COPIES, fit_capacity=capacity)
        ended(app)
        check(app.run())
    assert [each.capacity for each in begun] == [None]


def test_pieces_are_not_taken_unless_asked_for():
    doc = uploaded(wide())
    app = fit_page(doc=doc)
    assert "in pieces, other last digits" not in table(app)["stage"].tolist()
    before = table(app)["arena"].tolist()[-1]
    widget(app.checkbox, "In pieces: other last digits").set_value(True)
    check(app.run())
    assert address(app)["stages"] == "in_place,reorder,gradients,chunk,recompute"
    ended(app)
    check(app.run())
    rows = table(app).set_index("stage")
    assert rows.loc["in pieces, other last digits", "arena"] < before
    assert rows.loc["in pieces, other last digits", "proved for"] == ""
    assert any("In pieces, with other last digits" in text for text in said(app.markdown))
    assert any(" pieces of " in text for text in said(app.caption))


def test_stages_come_through_the_pipe_as_they_are():
    for graph, capacity in ((layers(), 9 * MIB), (wide(), 1)):
        times = modelled_times(graph, accelerator("h100-80"))
        fitted = fit_graph(graph, capacity, CHOICES, times=times, limits=SolveLimits(1))
        for stage in fitted.stages:
            read = _read_stage(stage_values(stage))
            assert (read.name, read.time, read.pieces) == (stage.name, stage.time, stage.pieces)
            assert (read.copied_bytes, read.impossible) == (stage.copied_bytes, stage.impossible)
            assert read.plan.arena_bytes == stage.plan.arena_bytes
    assert any(stage.impossible for stage in fitted.stages)


def test_a_job_tells_its_process_of_capacity_and_order(monkeypatch):
    sent = {}
    monkeypatch.setattr(FitJob, "_start", lambda self, process, values: sent.update(values))
    graph = layers()
    asked = fitting.FitAsked("net", (0, 0), (), fitting.Preparation(), CHOICES, 1.0, "h100-80", 9 * MIB)
    FitJob("session", asked, graph, ("f0", "f1")).run()
    assert (sent["capacity"], sent["order"]) == (9 * MIB, ("f0", "f1"))


def test_points_of_torch_stand_beside_the_curve(tmp_path):
    """As the file has them: one triangle for budgets that do the same, and its words below."""
    work = (OpWork(0, 1 << 30), 2)
    budgets = [
        TorchBudget(0.9, 12 * MIB, (work,)),
        TorchBudget(0.8, 12 * MIB, (work,)),
        TorchBudget(0, MIB, ()),
    ]
    write_json(layers(), tmp_path / "net.json", About(budgets=tuple(map(BudgetEntry.of, budgets))))
    doc = address(upload(open_app("import"), "net.json", (tmp_path / "net.json").read_bytes()))["doc"]
    app = fit_page(doc=doc)
    (found,) = [each for each in app.get("plotly_chart") if "fit_curve" in each.proto.id]
    (torch,) = [
        each for each in json.loads(found.proto.spec)["data"] if "activation_memory" in each.get("name", "")
    ]
    assert torch["text"] == ["0.9–0.8", "0"]
    gpu = accelerator("h100-80")
    seconds = sum(op_seconds(layers(), gpu))
    assert torch["y"] == [12 * MIB, MIB]
    assert torch["x"] == pytest.approx([2 * (1 << 30) / gpu.speed.bandwidth / seconds, 0], rel=1e-4)
    assert any("min-cut partitioner" in text for text in said(app.caption))
    assert not any("min-cut" in text for text in said(fit_page(doc=uploaded(layers())).caption))
