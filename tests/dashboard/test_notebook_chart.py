"""The chart in notebooks: its selection is a trait, in Python and from the browser."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("anywidget")
from memplan_dashboard import notebook
from memplan_dashboard.notebook import chart

from memplan_engine import MemplanError, make_plan, make_problem

PLAN = make_plan(make_problem([0, 1], [2, 3], [4, 8], names=["a", "b"]), "greedy_by_size")


def test_a_click_selects_and_a_name_is_shown():
    view, heard = chart(PLAN), []
    view.observe(lambda change: heard.append(change["new"]), "selected")
    shown = view._message
    view._report = {"index": 1, "serial": 1}
    assert (view.selected, view._message == shown) == ("b", True)
    view._report = {"index": None, "serial": 1}
    assert view.selected is None
    view.selected = "a"
    assert b'"selected":0' in view._message
    assert heard == ["b", None, "a"]


def test_what_makes_no_sense_is_refused(monkeypatch):
    with pytest.raises(MemplanError, match="selected: found 'c', expected the name of a buffer"):
        chart(PLAN).selected = "c"
    with pytest.raises(MemplanError, match="colour_by: found 'mood', expected one of module role"):
        chart(PLAN, colour_by="mood")
    monkeypatch.setattr(notebook, "MOST_BUFFERS", 1)
    with pytest.raises(MemplanError, match="found 2 buffers, expected 1 at most"):
        chart(PLAN)
