"""Bytes against extra time on the page Fit: the chart's values, a point by its address, what is proved."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.fit_bounds import envelope, time_lines
from memplan_dashboard.background.fit_job import FitAsked, FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.charts import memory_time, stage_waterfall
from memplan_dashboard.session import fitting, searches
from memplan_dashboard.views.fit import fit_curve
from streamlit.testing.v1 import AppTest

from memplan_engine import accelerator, fit_graph, load
from memplan_engine.analysis.op_costs import modelled_times
from memplan_engine.fitting.fit_stages import summed_up
from memplan_engine.fitting.fitted import LOWERING, StageName
from memplan_engine.fitting.recompute_stage import Curve, TimeLine
from memplan_engine.formats.memplan_json.json_file import dumps, loads
from memplan_engine.preparation import Preparation
from memplan_engine.rewrites.recompute.recomputed import Recomputation
from memplan_engine.strategies.base import SolveLimits
from tests import ROOT
from tests.dashboard.fit_graphs import ARENAS, MIB, layers
from tests.dashboard.test_dashboard_fit import ended, fit_page, headline, table
from tests.support.apptest import address, check, chips_of, open_app, said, upload, widget

GRAPH = layers()
QUICK = SolveLimits(5)


@cache
def whole(device="h100-80", only=LOWERING):
    """All that a fit of the layers finds."""
    times = modelled_times(GRAPH, accelerator(device)) if device else None
    return fit_graph(GRAPH, None, only, times=times, limits=QUICK)


@cache
def lines_of(device):
    """What is proved of every schedule of the layers."""
    times = modelled_times(GRAPH, accelerator(device))
    return time_lines(whole(device).curve, times, in_place=True, limits=QUICK)


def run_here(job):
    """What the process of `job` sends, without one: `test_fit_job` holds it against this."""
    found = whole(job.asked.device, job.asked.only)
    job._enter(State.RUNNING)
    job.stages = found.stages
    if found.curve:
        job.points, job.least_bytes = found.curve.points, found.curve.least_bytes
        job.lines = lines_of(job.asked.device)
    job._enter(State.DONE)


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(FitJob, "run", run_here)
    monkeypatch.setattr(searches, "session_is_alive", lambda session: True)
    monkeypatch.setattr("sys.argv", ["app.py"])
    fitting.results().clear()
    yield
    searches.scheduler().close()


@pytest.fixture
def doc():
    """The address of the layers."""
    return address(upload(open_app("import"), "net.json", dumps(GRAPH)))["doc"]


def chart_of(app):
    """The layout and the traces of the curve, None where there is none."""
    found = [each for each in app.get("plotly_chart") if "fit_curve" in each.proto.id]
    return json.loads(found[0].proto.spec) if found else None


def progress_of(app):
    return [each.proto.text.replace("\\", "") for each in app.get("progress")]


def asked(mebibytes, curve=None):
    """What the fit says of a capacity of the arena and the state."""
    found, times = whole(), modelled_times(GRAPH, accelerator("h100-80"))
    capacity = mebibytes * MIB + found.state_bytes
    return summed_up(GRAPH, capacity, LOWERING, found.stages, times=times, curve=curve or found.curve)


def test_the_page_has_the_curve_and_what_no_schedule_comes_below(doc):
    app = fit_page(doc=doc)
    assert headline(app).startswith("Needs 22 MiB: as captured")
    found = next(each for each in chart_of(app)["data"] if each.get("name") == "found")
    assert [told[1] for told in found["customdata"]] == [arena * MIB for arena in ARENAS]
    assert any("fewer than 8 MiB (8,388,608 B), however often" in text for text in said(app.caption))
    assert "times modelled: roofline of NVIDIA H100 SXM 80GB" in chips_of(app)
    points = next(each.value for each in app.dataframe if "with state" in each.value.columns)
    assert points["with state"].tolist() == [(arena + 1) * MIB for arena in ARENAS]
    assert points["extra time"].tolist() == ["+0.0 %", "+7.6 %", "+19.7 %", "+31.8 %", "+39.4 %"]
    assert points["at least, proved"].tolist() == ["+0.0 %", "+7.6 %", "+19.7 %", "+22.7 %", "+28.8 %"]


def test_a_point_of_the_address_is_the_last_stage_and_what_is_taken_away(doc, memplan, tmp_path, monkeypatch):
    app = fit_page(doc=doc, fit_capacity="18MiB")
    assert headline(app) == (
        "Fits in 18 MiB: ops run again, 1 MiB state + 17 MiB arena, +7.6 % time (no schedule is quicker than "
        "+7.6 %, proved)"
    )
    assert "< 0.001 % above the least time" in chips_of(app)
    rows = table(app)
    assert rows["stage"].tolist()[-1] == "ops run again"
    assert rows["arena"].tolist()[-1] == 17 * MIB
    assert rows["extra time"].tolist() == ["0 %", "0 %", "0 %", "+7.6 % (≥ +7.6 %)"]
    words = [each["text"] for each in chart_of(app)["layout"]["annotations"]]
    assert words == ["<b>chosen 17 MiB, +7.6 %</b><br>no schedule is quicker than +7.6 %"]
    assert any(text.startswith(":green[**−4 MiB**] Run 1 op again, +7.6") for text in said(app.markdown))
    command = app.code[-1].value
    only = "--only in_place,reorder,gradients,recompute"
    assert command == f"memplan fit net.json --capacity 18MiB {only} -o order.json --save-plan plan.json"
    (tmp_path / "net.json").write_bytes(dumps(GRAPH))
    monkeypatch.chdir(tmp_path)
    code, out, _ = memplan(*shlex.split(command)[1:])
    assert (code, "Fits in 18 MiB: ops run again" in out) == (0, True), out
    plan = loads((tmp_path / "plan.json").read_text(), "plan.json")
    assert [op.name for op in plan.problem.origin.graph.ops].count("f0_again") == 1


def test_between_two_points_only_what_holds_for_the_capacity_is_called_proved(doc):
    """Within 15 MiB no point but that of 13 fits; that one's own bound, 19.7 %, is of 13 MiB. At 17 it is
    7.6 %, and half way 13.6 %."""
    assert "+19.7 % time (no schedule is quicker than +13.6 %, proved)" in headline(
        fit_page(doc=doc, fit_capacity="16MiB")
    )
    curve = whole().curve
    bounds = [each.time.bound_seconds for each in curve.points]
    places = (22, 21, 20, 17, 16, 13, 9)
    known = [(arena, curve.least_seconds(arena * MIB)) for arena in places]
    expected = [0.0, bounds[0], bounds[0], bounds[1], bounds[1], bounds[2], bounds[4]]
    assert known == list(zip(places, expected, strict=True))


def test_lines_of_proofs_touch_the_border_and_never_pass_what_was_found():
    lines = lines_of("h100-80")
    curve = replace(whole().curve, lines=lines)
    corners = envelope(lines, curve.least_bytes, curve.points[0].plan.arena_bytes)
    assert [each for _, each in corners] == sorted((each for _, each in corners), reverse=True)
    assert [each for each, _ in corners] == sorted(each for each, _ in corners)
    again = Recomputation(GRAPH, modelled_times(GRAPH, accelerator("h100-80")).of_ops(GRAPH), in_place=True)
    for nbytes in range(curve.least_bytes, 21 * MIB, MIB // 3):
        # By the engine's own bound, which has a check of its own for these bytes.
        proved = again.bound(nbytes, SolveLimits(5)).seconds
        claimed = max([0.0, *(line.at(nbytes) for line in lines)])
        assert proved is None or claimed <= proved + 2e-9
        assert proved is None or claimed >= 0.97 * proved
    for point in curve.points:
        assert curve.least_seconds(point.plan.arena_bytes) <= point.time.extra_seconds
    # Straight between two corners, which no line is above.
    for (one, high), (other, low) in pairwise(corners):
        middle = (one + other) / 2
        assert max([0.0, *(line.at((high + low) / 2) for line in lines)]) == pytest.approx(middle, abs=1e-12)


def test_a_line_by_hand():
    lines = (TimeLine(10, 4.0, 1.0), TimeLine(6, 9.0, 3.0))
    assert [line.at(8) for line in lines] == [6.0, 3.0]
    # Nothing above 14; the second one is the higher below 6.5.
    assert envelope(lines, 4, 20) == [(0.0, 20.0), (0.0, 14.0), (7.5, 6.5), (15.0, 4.0)]
    assert envelope((), 4, 20) == [(0.0, 20.0), (0.0, 4.0)]


def test_below_the_least_it_does_not_fit_and_above_it_nobody_knows(doc):
    app = fit_page(doc=doc, fit_capacity="8MiB")
    assert headline(app) == (
        "Does not fit in 8 MiB, proved: 1 MiB state + at least 8 MiB arena (every order of the ops, however "
        "often they run again); the nearest found is ops run again, 1 MiB state + 10 MiB arena, +39.4 % time"
    )
    assert chips_of(app)[0] == "does not fit"
    widget(app.text_input, "Capacity").set_value("10MiB")
    check(app.run())
    assert headline(app).startswith(
        "Undecided for 10 MiB: the best found is ops run again, 1 MiB state + 10 MiB"
    )
    assert chart_of(app)["layout"]["annotations"][0]["text"].startswith("<b>smallest found 10 MiB, +39.4 %")
    # 1.394 of what all ops take once, against 1.288.
    assert "at most 8.2 % above the least time" in chips_of(app)


def test_another_device_has_other_times(doc):
    app = fit_page(doc=doc)
    widget(app.selectbox, "Times as on").set_value("rtx4090")
    check(app.run())
    assert address(app)["gpu"] == "rtx4090"
    ended(app)
    check(app.run())
    assert "times modelled: roofline of NVIDIA GeForce RTX 4090" in chips_of(app)
    assert {asked.device for asked in fitting.results()} == {"h100-80", "rtx4090"}
    seconds = {
        asked.device: outcome.curve.points[-1].time.extra_seconds
        for asked, outcome in fitting.results().items()
    }
    assert seconds["rtx4090"] == pytest.approx(seconds["h100-80"] * 3.35 / 1.008, rel=1e-3)
    assert app.code[-1].value.endswith("--device rtx4090 -o order.json --save-plan plan.json")
    again = fit_page(doc=doc, gpu="abacus")
    assert widget(again.selectbox, "Times as on").value == "h100-80"
    assert said(again.warning)[0].startswith("gpu: found 'abacus', expected one of rtx4090, a100-40")


def test_without_its_stage_there_is_no_curve(doc):
    app = fit_page(doc=doc, stages="in_place,reorder", fit_capacity="18MiB")
    assert chart_of(app) is None
    assert headline(app).startswith("Does not fit in 18 MiB, proved: 1 MiB state + at least 21 MiB arena")
    assert widget(app.selectbox, "Times as on").disabled
    assert not any(text.startswith("times") for text in chips_of(app))
    widget(app.checkbox, "Ops run again").set_value(True)
    check(app.run())
    ended(app)
    assert chart_of(check(app.run()))
    assert headline(app).startswith("Fits in 18 MiB: ops run again")


def test_points_are_shown_as_they_come_and_none_is_called_proved_before_all_are_there(doc, monkeypatch):
    monkeypatch.setattr(FitJob, "run", lambda job: job._enter(State.RUNNING))
    app = open_app("fit", doc=doc, fit_capacity="8MiB")
    job = app.session_state["fit_job"]
    job.stages, job.points, job.part = whole().stages, whole().curve.points[:3], StageName.RECOMPUTE
    check(app.run())
    assert headline(app).startswith("Does not fit in 8 MiB yet: so far ops run again")
    assert any("3 points, down to 13 MiB for +19.7 % time" in told for told in progress_of(app))
    assert len(chart_of(app)["data"][0]["x"]) == 3
    assert not any("proved" in text for text in said(app.caption))
    job.cancel()
    check(app.run())
    assert headline(app).startswith("Undecided for 8 MiB")
    assert "Cancelled: these are the stages that were there." in said(app.caption)
    assert len(chart_of(app)["data"][0]["x"]) == 3


def test_a_click_is_the_capacity_of_its_point(monkeypatch):
    chosen = {}
    monkeypatch.setattr(fit_curve.state, "choose", lambda **changes: chosen.update(changes))
    found = memory_time.figure(memory_time.data(whole())).data[0]
    fit_curve._take_clicked({"selection": {"points": [{"customdata": found.customdata[2]}]}}, MIB)
    assert chosen == {"fit_capacity": "14"}
    # A click that takes the selection away, and one on what nobody found.
    fit_curve._take_clicked({"selection": {"points": []}}, MIB)
    fit_curve._take_clicked({"selection": {"points": [{}]}}, MIB)
    assert chosen == {"fit_capacity": "14"}


def test_the_border_of_what_is_proved_at_points_alone_by_hand():
    """What is proved for an arena holds down to the next: a straight line from point to point would claim
    more."""
    points = tuple(memory_time.TimePoint(*each) for each in ((21, 0.0, 0.0), (17, 0.2, 0.1), (13, 0.5, 0.3)))
    border = memory_time.stairs(points, 8)
    assert border == [(0.0, 21), (0.0, 17), (0.1, 17), (0.1, 13), (0.3, 13), (0.3, 8)]
    values = memory_time.MemoryTime(points, 8, tuple(border), None, -1, ())
    drawn = memory_time.figure(values)
    found, hatched, dashed = drawn.data
    assert list(zip(found.x, found.y, strict=True)) == [(0.0, 21), (0.2, 17), (0.5, 13)]
    assert hatched.fillpattern.shape == "/"
    # From the border down to nothing, as far as the axis goes.
    assert (hatched.x[-3], hatched.y[-3]) == (drawn.layout.xaxis.range[1], 8)
    assert list(hatched.y[-2:]) == [0, 0]
    assert list(dashed.y) == list(hatched.y[:-2])


def test_what_the_chart_points_at():
    for mebibytes, place, told in (
        (30, 0, ("chosen 21 MiB", "nothing runs again")),
        (21, 0, ("chosen 21 MiB", "nothing runs again")),
        (9, 4, ("smallest found 10 MiB, +39.4 %", "no schedule is quicker than +28.8 %")),
        (7, 4, ("smallest found 10 MiB, +39.4 %",)),
    ):
        values = memory_time.data(asked(mebibytes))
        assert (values.chosen, values.told, values.room) == (place, told, mebibytes * MIB)
    assert memory_time.data(whole()).chosen == -1
    assert memory_time.data(asked(21, Curve(whole().curve.points[:1], 8 * MIB))) is None
    ring = memory_time.figure(memory_time.data(asked(9))).data[-1]
    assert (ring.x[0], ring.y[0]) == (whole().curve.points[4].time.extra, 10 * MIB)


def test_points_of_another_program_are_triangles_with_their_labels():
    knobs = [(18 * MIB, 2 * whole().curve.points[0].time.seconds, "0.5")]
    drawn = memory_time.figure(memory_time.data(whole(), knobs=knobs))
    torch = next(trace for trace in drawn.data if (trace.name or "").startswith("torch"))
    assert (list(torch.x), list(torch.y), list(torch.text)) == ([2.0], [18 * MIB], ["0.5"])
    assert torch.marker.symbol == "triangle-up"
    assert drawn.layout.xaxis.range[1] > 2.0
    assert not any(
        (each.name or "").startswith("torch") for each in memory_time.figure(memory_time.data(whole())).data
    )


def test_the_card_names_the_ops_and_the_modules_to_wrap(doc, monkeypatch):
    """The layers are no modules; those of BERT are."""
    app = fit_page(doc=doc, fit_capacity="14MiB")
    ops = next(each.value for each in app.dataframe if "again at" in each.value.columns)
    assert ops["op"].tolist() == ["f1", "f0"]
    assert ops["bytes"].tolist() == [4 * MIB, 4 * MIB]
    assert (ops["first at"] < ops["again at"]).all()
    assert not any("get_submodule" in each.value for each in app.code)
    graph = load(ROOT / "example_graphs" / "bert_training_default.json")
    times = modelled_times(graph, accelerator("h100-80"))
    fitted = fit_graph(graph, 700 * MIB, ("recompute",), times=times, limits=SolveLimits(1.0))
    asked = FitAsked("bert", (0, 0), (), Preparation(), ("recompute",), 1.0, "h100-80")
    shown = AppTest.from_function(card, args=(asked, fitted, times), default_timeout=60)
    check(shown.run())
    assert 'for name in [f"bert.encoder.layer.{i}.' in shown.code[0].value
    assert any(
        text.startswith("wrap 3 of 4 bert.encoder.layer.*.intermediate") for text in said(shown.caption)
    )


def card(asked, fitted, times):
    from memplan_dashboard.views.fit.fit_curve import show_again

    show_again(asked, fitted, fitted.stages[-1], times)


def test_the_waterfall_says_what_running_again_takes():
    bars = stage_waterfall.data(asked(13)).bars
    assert [(bar.label, bar.arena // MIB, bar.is_best) for bar in bars[-2:]] == [
        ("order", 21, False), ("run again", 13, True),
    ]  # fmt: skip
    drawn = stage_waterfall.figure(stage_waterfall.data(asked(13)))
    assert list(drawn.layout.xaxis.ticktext)[-2:] == ["order", "run again<br>+19.7 % time"]
