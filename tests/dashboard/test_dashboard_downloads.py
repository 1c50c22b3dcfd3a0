"""What Inspect gives to take along: the files that the buttons below the chart make."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("playwright")
from PIL import Image

from tests.support.dashboard_page import DashboardPage


def test_the_plan_that_is_shown_can_be_downloaded(dashboard_url, open_page):
    shown = DashboardPage(open_page(f"{dashboard_url}/?doc=example:teaching_best_fit&strategy=naive"))
    shown.settled()
    found = {}
    for label in ("Report, HTML", "SVG", "PNG"):
        with shown.page.expect_download() as download:
            shown.page.get_by_role("button", name=label).click()
        found[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    assert found.keys() == {f"teaching_best_fit_naive.{kind}" for kind in ("html", "svg", "png")}
    page = found["teaching_best_fit_naive.html"].decode()
    assert page.startswith("<!doctype html>")
    assert "planned by naive" in page
    assert "<dd>teaching_best_fit.csv</dd>" in page
    ElementTree.fromstring(found["teaching_best_fit_naive.svg"])
    assert Image.open(io.BytesIO(found["teaching_best_fit_naive.png"])).size == (1920, 1200)
