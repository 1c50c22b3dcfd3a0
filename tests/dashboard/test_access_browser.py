"""What axe finds on every page, light and dark: nothing that is ours, contrast included."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

PAGES = (
    "/?doc=example:teaching_view",
    "/?doc=example:squeezenet&selected=concat_4",
    "/fit?doc=example:teaching_order&capacity=20KiB",
    "/devices?ranks=recorded:llama_GPipe&with=recorded:llama_fsdp_8",
    "/pipeline?ranks=recorded:llama_1F1B",
    "/compare?doc=example:teaching_view",
    "/diff",
    "/replay",
    "/replay?lesson=2&doc=example:teaching_first_fit&strategy=first_fit_by_start&step=5&mode=predict",
    "/replay?doc=example:teaching_order&mode=order&order=0,5,6,1,2,3,4,7",
    "/run",
    "/learn",
    "/import",
)
QUICK = {("light", PAGES[0]), ("dark", PAGES[8]), ("dark", "/learn")}
"""The others are marked slow."""
FINISHED = """() => !document.querySelector('[data-stale="true"]')
    && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
    && !document.getAnimations().some((each) => each instanceof CSSTransition)"""
STREAMLITS_OWN = {"presentation-role-conflict": "section[data-testid=stFileUploaderDropzone]"}
"""Rules that elements of Streamlit break, and which elements."""


CASES = [
    pytest.param(scheme, page, marks=() if (scheme, page) in QUICK else pytest.mark.slow)
    for scheme in ("light", "dark")
    for page in PAGES
]


@pytest.mark.parametrize(("scheme", "page"), CASES)
def test_axe_finds_nothing_on_any_page(dashboard_url, open_page, scheme, page):
    tab = open_page(dashboard_url + page, scheme=scheme, width=1440, height=900)
    tab.page.get_by_test_id("stMainBlockContainer").wait_for()
    tab.settle()
    # While suggestions are looked for the page runs again, and what it replaces is faded.
    tab.page.get_by_text("Looking for ways").wait_for(state="detached")
    tab.page.wait_for_function(FINISHED)
    answer = axe.Axe().run(tab.page)
    found = [
        (each["id"], node["html"][:100], node["failureSummary"])
        for each in answer.response["violations"]
        for node in each["nodes"]
        if not is_streamlits_own(tab.page, each["id"], node)
    ]
    assert found == []


def is_streamlits_own(page, rule, node):
    selector, target = STREAMLITS_OWN.get(rule), node["target"][0]
    return bool(selector) and page.locator(target).first.evaluate("(e, s) => e.matches(s)", selector)
