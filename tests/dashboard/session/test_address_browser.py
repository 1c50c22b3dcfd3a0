"""The address and the tab's title in a real browser: one entry of the history a choice, Back and Forward."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")

from tests import ROOT
from tests.support.apptest import CSV
from tests.support.browser import serve
from tests.support.dashboard_page import DashboardPage


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    file = tmp_path_factory.mktemp("given") / "mine.csv"
    file.write_text(CSV)
    with serve(ROOT / "dashboard" / "app.py", file) as address:
        yield address


def entries(page):
    return page.page.evaluate("history.length")


def goes(page, title, **address):
    """Wait until the tab has this title, and the address holds this."""
    page.page.wait_for_function("title => document.title === title", arg=f"{title} — memplan")
    page.eventually(lambda: page.address, address)
    page.settled()


def test_back_undoes_a_choice_and_a_page_each_with_one_press(url, open_page):
    page = DashboardPage(open_page(url))
    mine, example = {"doc": "file:mine.csv"}, {"doc": "example:teaching_view"}
    goes(page, "Inspect · mine.csv", **mine)
    begun = entries(page)
    page.select("Graph", "teaching: view")
    page.select("Strategy", "naive")
    page.visit("Compare")
    goes(page, "Compare · teaching: view", **example, strategy="naive")
    assert entries(page) == begun + 3
    page.page.go_back()
    goes(page, "Inspect · teaching: view", **example, strategy="naive")
    page.titled("naive")
    page.page.go_back()
    goes(page, "Inspect · teaching: view", **example)
    page.titled("auto")
    page.page.go_back()
    goes(page, "Inspect · mine.csv", **mine)
    page.page.go_forward()
    page.page.go_forward()
    goes(page, "Inspect · teaching: view", **example, strategy="naive")
    page.titled("naive")
    assert entries(page) == begun + 3


def test_the_tab_names_what_opens_by_itself(url, open_page):
    page = DashboardPage(open_page(f"{url}/diff"))
    goes(page, "Diff · diff kept view head", doc="file:mine.csv")
    page.visit("Run")
    goes(page, "Run · perceptron", doc="file:mine.csv")
