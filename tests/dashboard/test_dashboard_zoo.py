"""The page Zoo: what fits, the numbers of the cells, the filter, and the graph that a cell opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("streamlit")
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.history.git.git_commit import stamped
from memplan_engine.history.history_values import HistoryRun
from memplan_engine.history.measuring import measure_graph
from memplan_engine.history.opening import open_history
from memplan_engine.preparation import Preparation
from tests.support.apptest import address, check, chips_of, open_app, said, widget
from tests.support.zoo_workers import sized


@pytest.fixture
def store(monkeypatch, tmp_path):
    """Two models with a variant for each batch: 1,000 bytes of weights and 128 for each sample, or 100 fewer
    by the naive strategy, which nothing really needs."""
    path = tmp_path / "history.db"
    how = Preparation(alignment=128)
    points = []
    for model, batches in (("net", (2, 16)), ("big", (16,))):
        for batch in batches:
            point = measure_graph(
                sized(batch), project="shop", model=model, variant=f"batch={batch}", how=how
            )
            points.append(point)
    point = points[0]
    fewer = replace(point.figures, arena=point.figures.arena - 100)
    points.append(replace(point, figures=fewer, series=replace(point.series, strategy="naive")))
    lost = replace(point, series=replace(point.series, model="lost"), graph_json=b"")
    points.append(replace(lost, fingerprints=replace(point.fingerprints, graph="")))
    with open_history(path) as history:
        history.record(stamped(HistoryRun("shop", commit="c1")), points)
        foreign = replace(point, series=replace(point.series, project="other"))
        history.record(stamped(HistoryRun("other")), [foreign])
    monkeypatch.setattr("sys.argv", ["app.py", str(path)])
    return path


def cells(app):
    """The table as numbers, without what is empty."""
    (table,) = app.dataframe
    rows = table.value.to_dict("index")
    return {model: {k: v for k, v in row.items() if v == v} for model, row in rows.items()}


def test_a_row_for_each_model_and_a_column_for_each_variant(store):
    app = open_app("zoo", project="shop", planned="auto")
    assert said(app.subheader) == ["4 variants of 3 models :gray[shop]"]
    assert cells(app) == {
        "big": {"fullest": 3048.0, "batch=16": 3048.0},
        "lost": {"fullest": 1256.0, "batch=2": 1256.0},
        "net": {"fullest": 3048.0, "batch=2": 1256.0, "batch=16": 3048.0},
    }
    assert list(app.dataframe[0].value.columns) == ["fullest", "batch=2", "batch=16"]
    widget(app.selectbox, "Cells show").set_value(widget(app.selectbox, "Cells show").options[-1])
    check(app.run())
    assert cells(app)["net"] == {"fullest": 3048.0, "batch=2": 256.0, "batch=16": 2048.0}
    assert address(app)["cells"] == "arena"


def test_of_several_strategies_the_one_that_needs_least_counts(store):
    assert cells(open_app("zoo", project="shop"))["net"]["batch=2"] == 1156.0
    app = open_app("zoo", project="shop", planned="naive")
    assert cells(app) == {"net": {"fullest": 1156.0, "batch=2": 1156.0}}


def test_against_a_capacity_bytes_over_it_are_shown(store):
    app = open_app("zoo", project="shop", room="3000B", planned="auto")
    assert said(app.subheader) == ["2 of 4 variants need more than 2.93 KiB :gray[shop]"]
    assert cells(app)["net"] == {"fullest": 3048.0, "batch=2": -1744.0, "batch=16": 48.0}
    assert chips_of(app)[1:] == ["2 over", "0 within a tenth of it"]
    widget(app.text_input, "Capacity").set_value("3050")
    check(app.run())
    assert said(app.subheader) == ["All 4 variants fit in 2.98 KiB :gray[shop]"]
    assert chips_of(app)[1:] == ["0 over", "2 within a tenth of it"]
    widget(app.selectbox, "Capacity of device").set_value("h100-80")
    check(app.run())
    assert "79." in said(app.subheader)[0]


def test_the_filter_takes_words_of_the_model_and_the_variant(store):
    app = open_app("zoo", project="shop", filter="NET batch=16")
    assert cells(app) == {"net": {"fullest": 3048.0, "batch=16": 3048.0}}
    widget(app.text_input, "Filter").set_value("nothing")
    check(app.run())
    assert not app.dataframe
    assert said(app.info) == ["No variant has all of: nothing"]


def test_a_variant_opens_in_inspect_as_it_was_planned(store):
    app = open_app("zoo", project="shop", planned="auto")
    pick = widget(app.selectbox, "Variant")
    assert pick.options[0] in ("big (batch=16)", "net (batch=16)")
    pick.set_value(("net", "batch=2"))
    check(app.run())
    widget(app.button, "Open in Inspect").click()
    check(app.run())
    chosen = address(app)
    assert chosen["doc"].startswith("upload:")
    assert (chosen["alignment"], chosen["strategy"]) == ("128", "auto")
    assert widget(app.selectbox, "Graph").value == chosen["doc"]
    (kept,) = (store.parent / "uploads").rglob("net (batch=2).json")
    assert kept.read_bytes() == dumps(sized(2))


def test_a_variant_without_a_graph_says_so(store):
    app = open_app("zoo", project="shop", planned="auto")
    widget(app.selectbox, "Variant").set_value(("lost", "batch=2"))
    check(app.run())
    widget(app.button, "Open in Inspect").click()
    check(app.run())
    assert "lost (batch=2): found no graph in the store" in said(app.error)[0]


def test_another_project_and_what_was_recorded_since_are_there(store):
    app = open_app("zoo")
    assert widget(app.selectbox, "Project").value == "other"
    assert cells(app)["net"] == {"fullest": 1256.0, "batch=2": 1256.0}
    with open_history(store) as history:
        (point,) = history.latest_points("other")
        new = measure_graph(
            sized(4), project="other", model="net", variant="batch=2", how=Preparation(alignment=128)
        )
        assert new.series == point.series
        history.record(stamped(HistoryRun("other", commit="c2")), [new])
    check(app.run())
    assert cells(app)["net"]["batch=2"] == 1512.0


def test_without_a_store_it_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["app.py"])
    app = open_app("zoo")
    assert "memplan zoo zoo.toml" in said(app.info)[0]
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    monkeypatch.setattr("sys.argv", ["app.py", str(tmp_path / "other.db")])
    app = open_app("zoo")
    assert "other.db" in said(app.error)[0]
    # Inspect opens its example, not the store.
    assert widget(open_app().selectbox, "Graph").value == "example:gpt2"
