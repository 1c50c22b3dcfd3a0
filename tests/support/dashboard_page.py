"""The dashboard as its tests and its benchmark drive it: pick, type, upload, and look at the chart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.support.browser import Tab

CHART = (
    "document.querySelector('[data-testid=stBidiComponentIsolated]')?.shadowRoot?.querySelector('.plan-view')"
)
GUTTER = 76

ON_RECTANGLE = """(stage, places) => places.find(([clientX, clientY]) => {
    stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
    return stage.classList.contains("on-rect");
})"""
ON_SCREEN = "() => new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))"


class DashboardPage:
    """One tab on the dashboard; every action waits until what it caused is on the screen."""

    def __init__(self, tab: Tab, wait: bool = True) -> None:
        self.tab, self.page = tab, tab.page
        self.root = self.page.locator(".plan-view[data-drawn]")
        if wait:
            self.root.first.wait_for()
            self.settled()

    def settled(self) -> None:
        """Wait for the end of the script run."""
        self.tab.settle()

    # The controls.

    def select(self, label: str, option: str) -> None:
        """Choose an option of a select box."""
        self.offered(label, option).click()
        self.settled()

    def offered(self, label: str, option: str) -> Locator:
        """Return an option of a select box, in sight.

        A long list holds only the options in sight, until something is typed.
        """
        options = self.page.get_by_role("option")
        box = self.combobox(label)

        def is_open() -> bool:
            # The page closes a list when it scrolls, and the focus on the list may scroll it.
            if box.get_attribute("aria-expanded") != "true":
                box.click()
            self.page.evaluate(ON_SCREEN)
            return options.count() > 0

        box.focus()
        self.page.evaluate(ON_SCREEN)
        wait_until(is_open)
        wanted = self.page.get_by_role("option", name=option, exact=True)
        if not wanted.count():
            self.page.keyboard.insert_text(option)
        wanted.wait_for()
        return wanted

    def combobox(self, label: str) -> Locator:
        """Return the field of a select box."""
        return self.page.get_by_role("combobox", name=re.compile(f"{re.escape(label)}$"))

    def open_list(self, label: str) -> None:
        """Open a select box and type nothing."""
        self.combobox(label).click()

    def type(self, label: str, text: str) -> None:
        """Type into a text or number field and leave it with Enter."""
        field = self.page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")
        self.settled()

    @property
    def find_field(self) -> Locator:
        """The search field above the chart."""
        return self.root.get_by_role("searchbox")

    def find(self, text: str) -> None:
        """Search, and leave nothing unsent."""
        self.find_field.fill(text)
        self.find_field.press("Enter")
        self.settled()

    def upload(self, name: str, content: bytes | str) -> None:
        """Give a file to the uploader."""
        raw = content.encode() if isinstance(content, str) else content
        file = {"name": name, "mimeType": "application/octet-stream", "buffer": raw}
        self.page.locator("input[type=file]").set_input_files(file)
        self.settled()

    def visit(self, title: str) -> None:
        """Go to another page by its link."""
        self.page.get_by_role("link", name=title).click()
        self.settled()

    # What is shown.

    @property
    def title(self) -> str:
        """The strategy of the first panel."""
        return self.titles[0]

    @property
    def titles(self) -> list[str]:
        """The strategies of all panels."""
        return self.root.locator(".caption .title").all_inner_texts()

    @property
    def subtitle(self) -> str:
        """The figures of the first panel."""
        return self.root.locator(".caption .subtitle").first.inner_text()

    @property
    def alerts(self) -> list[str]:
        """Errors, warnings and notes."""
        return self.page.get_by_test_id("stAlert").all_inner_texts()

    def metric(self, label: str) -> str:
        """A figure of the page: a metric, or a chip above the chart; "" while it is not there."""
        found = self.page.get_by_test_id("stMetric").filter(has_text=label)
        if found.count():
            return str(found.get_by_test_id("stMetricValue").inner_text())
        chips = self.page.locator(".st-key-figures .stMarkdownBadge").all_inner_texts()
        return next((chip.removeprefix(f"{label} ") for chip in chips if chip.startswith(f"{label} ")), "")

    @property
    def details(self) -> Locator:
        """The box of the selected buffer."""
        return self.page.locator(".st-key-details, .plan-view .side:not([hidden]) .details")

    @property
    def address(self) -> dict[str, str]:
        """The parameters in the URL."""
        # Asked in the page: what Playwright knows of it is as old as its last event.
        query = urlsplit(self.page.evaluate("location.href")).query
        return {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}

    def drawn(self, name: str, value: str, other: bool = False) -> None:
        """Wait until the chart's data attribute `name` has a value (or has another one)."""
        sign = "!==" if other else "==="
        script = f"([name, value]) => {CHART}?.getAttribute('data-' + name) {sign} value"
        self.page.wait_for_function(script, arg=[name, value])

    def titled(self, title: str) -> None:
        """Wait until the first panel shows the plan of a strategy."""
        script = f"title => {CHART}?.querySelector('.title')?.textContent === title"
        self.page.wait_for_function(script, arg=title)

    def data(self, name: str) -> str | None:
        """A data attribute of the chart."""
        return self.root.get_attribute(f"data-{name}")

    def unselected(self) -> None:
        """Wait until nothing is selected."""
        self.drawn("selected", "")
        self.settled()

    def eventually(self, look: Callable[[], object], expected: object) -> None:
        """Wait until `look()` returns `expected`: the run that shows it may not have come yet."""
        wait_until(lambda: look() == expected, look)

    def find_rectangle(self, among: list[tuple[float, float]]) -> tuple[float, float]:
        """The first of these places (shares of the first plot) that lies on a rectangle."""
        stage = self.root.locator(".stage").first
        stage.scroll_into_view_if_needed()
        box = stage.bounding_box()
        assert box is not None
        others = [(x / 120, y / 30) for y in range(28, 0, -1) for x in range(2, 118)]
        width, height = box["width"] - GUTTER, box["height"] * 0.7
        places = [(box["x"] + GUTTER + x * width, box["y"] + 4 + y * height) for x, y in (*among, *others)]
        # Asked in the page: a mouse takes some milliseconds to each place.
        found = stage.evaluate(ON_RECTANGLE, places)
        assert found, "no rectangle at any of these places"
        self.page.mouse.move(*found)
        assert "on-rect" in (stage.get_attribute("class") or "")
        return float(found[0]), float(found[1])
