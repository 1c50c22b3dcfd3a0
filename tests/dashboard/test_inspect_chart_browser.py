"""The chart on the Inspect page: what it marks, finds and zooms into is in the address, and comes back."""

import pytest

pytest.importorskip("playwright")
from tests.support.dashboard_page import DashboardPage

LINK = "/?doc=example:gpt2&selected=add_2&at=74,120&find=mlp%5C.act&view=200,300,0,30000000"


@pytest.fixture
def dashboard(dashboard_url, open_page):
    def open_one(address="/", **options):
        return DashboardPage(open_page(f"{dashboard_url}{address}", **options))

    return open_one


def test_a_link_brings_everything_back(dashboard):
    page = dashboard(LINK)
    assert page.data("view") == "200.00,300.00,0.00,30000000.00"
    assert page.data("marks") == "74,120"
    assert page.data("selected") != ""
    assert page.root.locator(".find .field").input_value() == "mlp.act"
    # 12 layers of 8 results of 12 MiB.
    assert page.root.locator(".find .count").inner_text() == "96 · 1.12 GiB"
    wanted = {"doc": "example:gpt2", "selected": "add_2", "at": "74,120", "find": r"mlp\.act"}
    assert page.address == wanted | {"view": "200,300,0,30000000"}
    # A run of the page leaves the zoom where it is.
    page.select("Strategy", "linear_scan")
    page.titled("linear_scan")
    page.eventually(lambda: page.address.get("view"), "200,300,0,30000000")
    assert page.data("view") == "200.00,300.00,0.00,30000000.00"


@pytest.mark.slow
def test_marks_and_search_go_to_the_address_and_end_with_the_graph(dashboard):
    page = dashboard("/?doc=example:gpt2")
    page.root.locator(".stage").first.focus()
    page.page.keyboard.press("n")
    page.drawn("marks", ",", other=True)
    step = page.data("marks").removesuffix(",")
    page.eventually(lambda: page.address.get("at"), step)
    page.page.keyboard.press("/")
    page.page.keyboard.type("wte")
    page.root.locator(".find .count").filter(has_text="3 MiB").wait_for()
    page.eventually(lambda: page.address.get("find"), "wte")
    page.select("Graph", "resnet50")
    page.drawn("marks", ",")
    page.eventually(lambda: "at" in page.address, False)
