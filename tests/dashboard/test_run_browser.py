"""The page Run in a real browser: a model runs, its curves are drawn, and the run can be taken along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("playwright")
from tests.support.dashboard_page import DashboardPage

CURVES = """() => [...document.querySelectorAll('.js-plotly-plot .scatterlayer .js-line')]
    .map((line) => line.getAttribute('d')).filter((path) => path && !path.includes('NaN')).length"""
NAMES = ["predicted", "measured, dispatch level", "measured, allocator level"]


@pytest.mark.slow
def test_an_example_runs_and_its_three_curves_are_drawn_and_downloaded(dashboard_url, open_page):
    shown = DashboardPage(open_page(f"{dashboard_url}/run"), wait=False)
    shown.page.get_by_role("button", name="Run", exact=True).click()
    shown.page.wait_for_selector(".js-plotly-plot .legend .traces")
    shown.settled()
    assert shown.page.evaluate(CURVES) == 3
    assert shown.page.locator(".js-plotly-plot .legendtext").all_text_contents() == NAMES
    assert shown.alerts == []
    assert shown.metric("Predicted peak") == shown.metric("Measured peak") == "64.25 KiB"
    shown.page.get_by_role("tab", name="Downloads").click()
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Download the run").click()
    assert download.value.suggested_filename == "run.json"
    run = json.loads(Path(download.value.path()).read_text())
    assert (run["name"], len(run["ops"]), run["equality"]["exact"]) == ("perceptron", 5, True)
    assert max(run["predicted"]) == max(run["dispatch"]) == 65_792
