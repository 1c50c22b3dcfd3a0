"""What axe finds on every page, light and dark: nothing that is ours, contrast included."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")
pytest.importorskip("streamlit")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

PAGES = (
    "/?doc=example:teaching_view",
    "/?doc=example:squeezenet&selected=concat_4",
    "/fit?doc=example:teaching_order&fit_capacity=20KiB",
    "/fit?doc=example:teaching_recompute&fit_capacity=22MiB",
    "/devices?ranks=recorded:llama_GPipe&with=recorded:llama_fsdp_8",
    "/pipeline?ranks=recorded:llama_1F1B",
    "/compare?doc=example:teaching_view",
    "/diff",
    "/replay",
    "/replay?lesson=2&doc=example:teaching_first_fit&strategy=first_fit_by_start&step=5&mode=predict",
    "/replay?doc=example:teaching_order&mode=order&order=0,5,6,1,2,3,4,7",
    "/replay?doc=example:teaching_recompute&mode=keep&gone=f2,f4&lesson=8",
    "/run",
    "/learn",
    "/import",
    "/history",
    "/zoo",
)
FINISHED = """() => !document.querySelector('[data-stale="true"]')
    && document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"""
STREAMLITS_OWN = {"presentation-role-conflict": "section[data-testid=stFileUploaderDropzone]"}
"""Rules that Streamlit's own elements break, and which: they cannot be mended here."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(dashboard_url, open_page, scheme):
    tab = open_page(f"{dashboard_url}/_stcore/health", scheme=scheme, width=1440, height=900)
    found = {}
    for page in PAGES:
        tab.page.goto(dashboard_url + page)
        tab.page.get_by_test_id("stMainBlockContainer").wait_for()
        tab.settle(120)
        # While suggestions are looked for the page runs again, and what it replaces is faded.
        tab.page.get_by_text("Looking for ways").wait_for(state="detached", timeout=60_000)
        tab.page.wait_for_timeout(400)
        tab.page.wait_for_function(FINISHED)
        answer = axe.Axe().run(tab.page)
        found[page] = [
            (each["id"], node["html"][:100], node["failureSummary"])
            for each in answer.response["violations"]
            for node in each["nodes"]
            if not is_streamlits_own(tab.page, each["id"], node)
        ]
    assert not any(found.values()), {page: told for page, told in found.items() if told}


def is_streamlits_own(page, rule, node):
    selector, target = STREAMLITS_OWN.get(rule), node["target"][0]
    return bool(selector) and page.locator(target).first.evaluate("(e, s) => e.matches(s)", selector)
