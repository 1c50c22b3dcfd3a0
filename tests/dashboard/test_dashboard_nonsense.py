"""Nonsense in the address of every page: a message beside the control, or nothing; never a traceback."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.background.fit_job import FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.charts import layout_bar
from memplan_dashboard.session import documents, state, uploads
from memplan_examples.make_snapshot import Allocator, frame, write_snapshot

from memplan_engine import load, make_plan, make_problem, write_csv, write_json
from memplan_engine.analysis.layout import make_layout
from tests.support.apptest import address, check, chips_of, open_app, widget

HOSTILE = '</script><img src=x onerror="window.hacked=1">'
VALUES = (
    "<script>alert(1)</script>", "-1", "9" * 400, "9" * 100_000, "nan", "inf", "1e400", "\u202e,=:;%", "\x00",
    "\u0661", "device=0,pool=7:7", "(?R)", "(a+)+$", "upload:../..",
)  # fmt: skip
PAGES = ("", "fit", "devices", "pipeline", "compare", "diff", "replay", "run", "learn", "import")


@pytest.fixture(autouse=True)
def _no_fits(monkeypatch):
    """The page Fit waits for a process that is never started."""
    monkeypatch.setattr(FitJob, "run", lambda job: job._enter(State.RUNNING))


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A graph, a list of buffers with names that are markup, and a recording of two pools."""
    graph = load(documents.memplan_examples.examples()[0].parent / "diff_kept_view_base.json")
    write_json(graph, tmp_path / "graph.json")
    write_csv(make_problem([0, 1, 0], [2, 3, 3], [9, 5, 4], names=["a", HOSTILE, "c"]), tmp_path / "list.csv")
    allocator = Allocator()
    allocator.alloc(4000, [frame(3, HOSTILE, f"/x/{HOSTILE}.py")])
    allocator.alloc(9000, pool=(0, 1))
    write_snapshot(tmp_path / "two.pickle", allocator.snapshot())
    files = [str(tmp_path / name) for name in ("graph.json", "list.csv", "two.pickle")]
    monkeypatch.setattr("sys.argv", ["app.py", *files])


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value[:24]))
def test_everything_is_nonsense_at_once(page, value):
    app = open_app(page, **dict.fromkeys(state.PARAMETERS, value))
    assert not app.exception
    # Whatever stands there of it stands there as text, and short.
    assert not any("9" * 100 in each.value for each in app.error)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "import"])
@pytest.mark.parametrize("doc", ["file:graph.json", "file:list.csv", "file:two.pickle"])
def test_everything_but_the_files_is_nonsense(page, doc):
    several = dict.fromkeys(state.PARAMETERS, "<script>") | {"doc": doc, "base": doc, "head": "file:list.csv"}
    for tab in ("What if", "Changed buffers") if page in ("", "diff") else ("",):
        app = open_app(page, **several | {"tab": tab, "capacity": "0.01"})
        assert not app.exception


def test_a_strategy_that_is_none_is_said_beside_the_controls():
    def told(page="", **asked):
        app = open_app(page, doc="file:list.csv", **asked)
        return [each.value.replace("\\", "") for each in app.warning]

    expected = "found 'foo', expected one of those in the list."
    assert told(strategy="foo") == [f"strategy: {expected} This is auto."]
    assert told("compare", compare="naive,foo,auto") == [f"compare: {expected}"]
    # Known ones are no mistake, nor is the plan of a file that was open before.
    assert told(strategy="imported") == told(strategy="naive") == told("compare", compare="naive,auto") == []


def test_addresses_with_the_former_name_of_the_capacity_open_as_before():
    app = open_app(doc="file:list.csv", budget="0.01")
    assert widget(app.text_input, "Fits in").value == "10486"
    assert (address(app)["capacity"], "budget" in address(app)) == ("0.01", False)


def test_a_capacity_that_is_no_round_number_is_shown_in_bytes():
    app = open_app(doc="file:list.csv", capacity="0.01")
    assert widget(app.text_input, "Fits in").value == "10486"
    assert any(chip.startswith("Fits, ") for chip in chips_of(app))


@pytest.mark.parametrize("tab", ["", "All buffers", "Layout", "What if", "Reserved"])
def test_names_that_are_markup_stay_text(tab):
    for doc, selected in (("file:list.csv", HOSTILE), ("file:two.pickle", f"{HOSTILE}.py:3 {HOSTILE} #1")):
        app = open_app(doc=doc, tab=tab, selected=selected)
        assert not [each.value for each in (*app.markdown, *app.caption) if HOSTILE in each.value]
    app = open_app("diff", base="file:list.csv", head="file:two.pickle", changed=f"base:{HOSTILE}")
    assert not [each.value for each in (*app.markdown, *app.caption) if HOSTILE in each.value]


def test_a_snapshot_that_is_cut_short_is_explained_on_every_page(tmp_path, monkeypatch):
    whole = (tmp_path / "two.pickle").read_bytes()
    (tmp_path / "cut.pickle").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "list.csv"), str(tmp_path / "cut.pickle")])
    for page, where in (
        ("", "doc"),
        ("compare", "doc"),
        ("replay", "doc"),
        ("diff", "base"),
        ("diff", "head"),
    ):
        files = {"base": "file:list.csv", "head": "file:list.csv"} if page == "diff" else {}
        app = open_app(page, **files | {where: "file:cut.pickle"})
        assert "it was cut short" in app.error[0].value.replace("\\", "")
        assert len(app.error) == 1
    app = check(open_app("import"))
    app.file_uploader[0].upload("cut.pickle", whole[:-9])
    assert "cut short" in check(app.run()).error[0].value.replace("\\", "")


def test_a_thousand_equal_names_are_refused_in_one_line(tmp_path):
    key, _ = uploads.keep("same.csv", b"id,lower,upper,size\n" + b"same,0,1,4\n" * 1000)
    for page, where in (("", "doc"), ("compare", "doc"), ("replay", "doc"), ("diff", "head")):
        app = open_app(page, **{where: key})
        (error,) = app.error
        told = error.value.replace("\\", "")
        assert told == "same.csv: line 3, field id: found 'same', already on line 2, expected unique ids"


def test_models_that_have_nothing_in_common_are_said_to_be_two():
    app = open_app("diff", base="file:graph.json", head="file:list.csv")
    assert "These look like two different models: only 0.0 % of the buffers" in app.warning[0].value.replace(
        "\\", ""
    )


def test_plotly_gets_no_markup_from_names():
    problem = make_problem([0, 1], [2, 3], [900, 500], names=[HOSTILE, "<b>bold</b>"])
    plan = make_plan(problem, "naive")
    figures = (
        layout_bar.figure(layout_bar.data(make_layout(plan))),
        plan.figure(),
    )
    told = [str(figure.to_plotly_json()) for figure in figures]
    assert not [each for each in told if "<img" in each or "<b>bold" in each]
    assert "&lt;b&gt;bold" in told[1]
