"""The files that the buttons below the chart of Inspect make."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.views.inspect import downloads
from PIL import Image

from memplan_engine import load, make_plan
from tests import ROOT
from tests.support.apptest import open_app

GRAPH = ROOT / "example_graphs" / "teaching_best_fit.csv"


def test_the_plan_that_is_shown_can_be_downloaded(monkeypatch):
    """`test_run_browser` presses such a button; AppTest cannot."""
    files = {}

    def keep(label, make, file, kind, **_):
        files[file] = label, kind, make()

    monkeypatch.setattr(downloads.st, "download_button", keep)
    open_app(doc="example:teaching_best_fit", strategy="naive")
    name, plan = "teaching_best_fit_naive", make_plan(load(GRAPH), "naive")
    assert {file: (label, kind) for file, (label, kind, _) in files.items()} == {
        f"{name}.csv": ("Offsets, CSV", "text/csv"),
        f"{name}.json": ("Plan, JSON", "application/json"),
        f"{name}_peak.csv": ("Peak, CSV", "text/csv"),
        f"{name}.html": ("Report, HTML", "text/html"),
        f"{name}.svg": ("SVG", "image/svg+xml"),
        f"{name}.png": ("PNG", "image/png"),
    }
    content = {file: made for file, (_, _, made) in files.items()}
    assert all(isinstance(made, bytes) for made in content.values())
    rows = content[f"{name}.csv"].decode().splitlines()
    assert [int(row.split(",")[-1]) for row in rows[1:]] == plan.offsets.tolist()
    assert json.loads(content[f"{name}.json"])["offsets"] == plan.offsets.tolist()
    assert content[f"{name}_peak.csv"].count(b"\n") > 1
    page = content[f"{name}.html"].decode()
    assert page.startswith("<!doctype html>")
    assert "planned by naive" in page
    assert "<dd>teaching_best_fit.csv</dd>" in page
    ElementTree.fromstring(content[f"{name}.svg"])
    assert Image.open(io.BytesIO(content[f"{name}.png"])).size == (1920, 1200)
