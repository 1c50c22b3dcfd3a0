"""A tab with nothing on it, for JavaScript that needs only a browser: one for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Tab, open_tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@dataclass
class EmptyTab:
    """A tab at an address that answers with a few letters."""

    tab: Tab
    url: str

    def open(self, query: str = "", width: int = 1280, height: int = 800, scheme: str = "light") -> Page:
        """Return the page as if it were new."""
        page = self.tab.page
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto(self.url + query)
        page.mouse.move(0, 0)
        return page

    def check(self) -> None:
        """Raise AssertionError for what the browser complained of since the last check."""
        errors, foreign = [*self.tab.errors], {*self.tab.foreign_hosts}
        self.tab.errors.clear()
        self.tab.foreign_hosts.clear()
        assert not errors, f"the browser complained: {errors}"
        assert not foreign, f"the page asked other hosts than its own: {foreign}"


_KEPT: list[tuple[Browser, EmptyTab]] = []


@pytest.fixture
def empty_tab(chromium: Browser, dashboard_url: str) -> Iterator[EmptyTab]:
    """The tab, whose errors fail the test. It is kept for later tests while the browser is."""
    if not _KEPT or _KEPT[-1][0] is not chromium:
        url = f"{dashboard_url}/_stcore/health"
        _KEPT[:] = [(chromium, EmptyTab(open_tab(chromium, url, 1280, 800, "light"), url))]
    ((_, tab),) = _KEPT
    yield tab
    tab.check()


@pytest.fixture
def empty_page(empty_tab: EmptyTab) -> Page:
    """A page with nothing on it, to run JavaScript in."""
    return empty_tab.open()
