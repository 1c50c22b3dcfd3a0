"""Back, in a browser: what an upload or a lesson opened is one way back, without detours."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
from tests import ROOT
from tests.support.dashboard_page import DashboardPage

LIST = ROOT / "example_graphs" / "teaching_best_fit.csv"


def test_back_from_an_upload_leads_to_what_was_open_before(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:teaching_gaps&colour=lifetime"))
    before = page.address
    page.page.get_by_role("link", name="Import").first.click()
    page.page.locator("input[type=file]").first.set_input_files(LIST)
    page.eventually(lambda: page.address.get("doc", "").startswith("upload:"), True)
    page.page.locator(".st-key-inspect_view").wait_for()
    page.settled()
    seen = []
    for _ in range(3):
        page.page.go_back()
        page.settled()
        seen.append(page.address)
    # No address without its choices in between.
    assert all(each.get("colour") == "lifetime" for each in seen)
    assert seen[-1] == before
