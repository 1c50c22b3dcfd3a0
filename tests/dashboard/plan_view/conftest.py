"""The chart alone in a page of its own, with the scenes of `plan_view_app.py`."""

from __future__ import annotations

import pytest

from tests.support.browser import serve


@pytest.fixture(scope="module")
def app_url():
    from tests.dashboard.plan_view.test_plan_view_browser import APP

    with serve(APP) as url:
        yield url


@pytest.fixture
def open_chart(app_url, open_page):
    from tests.dashboard.plan_view.test_plan_view_browser import Chart

    def open_one(scene="plain", **options):
        return Chart(open_page(f"{app_url}/?scene={scene}", **options))

    return open_one
