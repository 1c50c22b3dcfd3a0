"""The Content-Security-Policy in a real browser: every page works under it, and what it forbids does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.browser import Tab

LISTEN = """
window.violations = [];
addEventListener("securitypolicyviolation", e => violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""
PAGES = (
    "/?doc=example:gpt2&tab=All+buffers", "/?doc=example:gpt2&tab=Layout",
    "/?doc=example:gpt2_dynamic&tab=Sizes", "/compare", "/diff", "/replay", "/run", "/learn", "/import",
)  # fmt: skip
CSV = "id,lower,upper,size\na,0,4,10\nb,1,3,20\n"
INJECTED = """async () => {
  const refused = new Promise(resolve => addEventListener("securitypolicyviolation", () => {
    if (window.violations.length === 3) resolve();
  }));
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.body.append(script);
  const asked = await fetch("http://127.0.0.1:9/", {mode: "no-cors"}).then(() => "sent", () => "refused");
  const frame = document.createElement("iframe");
  frame.src = "/";
  document.body.append(frame);
  await refused;
  return [window.ran ?? false, asked, window.violations.map(each => each.split(" ")[0]).sort()];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_keeps_to_the_policy(
    dashboard_url: str, open_page: Callable[..., Tab], scheme: str
) -> None:
    """open_page fails on what the console says of violations, too."""
    tab = open_page(f"{dashboard_url}/_stcore/health", scheme=scheme)
    tab.page.add_init_script(LISTEN)
    for page in PAGES:
        tab.page.goto(dashboard_url + page)
        tab.settle()
        assert tab.page.evaluate("violations") == [], page
    tab.page.locator("input[type=file]").set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": CSV.encode()}
    )
    tab.page.get_by_text("Arena 30 B").first.wait_for()
    tab.page.locator(".plan-view[data-drawn]").first.wait_for()
    # The page runs again when it has its suggestions, and takes away what a click has just had made.
    tab.page.get_by_text("Looking for ways to save memory").wait_for(state="hidden")
    tab.settle()
    for name, suffix in (("Report, HTML", ".html"), ("SVG", ".svg"), ("PNG", ".png")):
        with tab.page.expect_download() as waiting:
            tab.page.get_by_role("button", name=name, exact=True).click()
        assert waiting.value.suggested_filename.endswith(suffix)
    assert tab.page.evaluate("violations") == []


def test_what_the_policy_forbids_does_not_happen(dashboard_url: str, open_page: Callable[..., Tab]) -> None:
    tab = open_page(f"{dashboard_url}/_stcore/health")
    tab.page.add_init_script(LISTEN)
    tab.page.goto(f"{dashboard_url}/import")
    tab.settle()
    assert tab.page.evaluate("violations") == []
    found: list[Any] = tab.page.evaluate(INJECTED)
    assert found == [False, "refused", ["connect-src", "frame-src", "script-src-elem"]]
    # The browser has complained, as it should.
    tab.errors.clear()
    tab.foreign_hosts.clear()
