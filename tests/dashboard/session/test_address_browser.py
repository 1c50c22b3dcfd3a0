"""The address and the tab's title in a real browser: one entry of the history a choice, Back and Forward."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")

from tests.support.dashboard_page import DashboardPage
from tests.support.page_socket import PageSocket


def entries(page):
    return page.page.evaluate("history.length")


def goes(page, title, **address):
    """Wait until the tab has this title, and the address holds this."""
    page.page.wait_for_function("title => document.title === title", arg=f"{title} — memplan")
    page.eventually(lambda: page.address, address)
    page.settled()


def test_back_undoes_a_choice_and_a_page_each_with_one_press(dashboard_url, open_page):
    page = DashboardPage(open_page(f"{dashboard_url}/?doc=example:teaching_gaps"))
    first, second = {"doc": "example:teaching_gaps"}, {"doc": "example:teaching_view"}
    goes(page, "Inspect · teaching: gaps", **first)
    begun = entries(page)
    page.select("Graph", "teaching: view")
    page.select("Strategy", "naive")
    page.visit("Compare")
    goes(page, "Compare · teaching: view", **second, strategy="naive")
    assert entries(page) == begun + 3
    page.page.go_back()
    goes(page, "Inspect · teaching: view", **second, strategy="naive")
    page.titled("naive")
    page.page.go_back()
    goes(page, "Inspect · teaching: view", **second)
    page.titled("auto")
    page.page.go_back()
    goes(page, "Inspect · teaching: gaps", **first)
    page.page.go_forward()
    page.page.go_forward()
    goes(page, "Inspect · teaching: view", **second, strategy="naive")
    page.titled("naive")
    assert entries(page) == begun + 3


@pytest.mark.browser
def test_the_tab_names_what_opens_by_itself(dashboard_url):
    def title(page):
        with PageSocket(dashboard_url) as session:
            sent = session.run("", page)
        return [each.page_config_changed.title for each in sent if each.HasField("page_config_changed")][-1]

    assert title("diff") == "Diff · diff kept view head — memplan"
    assert title("run") == "Run · perceptron — memplan"
