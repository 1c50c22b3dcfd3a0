"""One browser of a crowd: a Chromium of its own in which several people have the dashboard open.

    python -m tests.support.crowd URL ADDRESS…

opens a context for each address, one person's browser each. Then for every line "N" on stdin each person acts
N times, in turns and with a second to think, and a line of JSON goes to stdout: the seconds that each action
took, and what the pages complained of. An action is another strategy, a rectangle, or, for whoever searches,
"Cancel" or "Keep solving"; it takes from the click until the result is on the screen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Error, sync_playwright

from tests.support.browser import FLAGS, Tab, find_chromium, open_tab
from tests.support.dashboard_page import DashboardPage

SWAPS = ("linear_scan", "greedy_by_size", "greedy_by_breadth", "greedy_by_area")
PLACES = [(0.1 + column / 20, 0.99 - row / 40) for row in range(8) for column in range(16)]
"""Where to look for a rectangle: at the bottom of the arena there is nearly always one."""
BUTTONS = ("Cancel", "Keep solving")
PATIENCE_MS = 240_000
"""Until a page is there: sixteen browsers begin at once on two cores."""
THINKS_MS = 1000
"""Before each action: four browsers have two actions a second, as sixteen people who click every eight."""
Action = Callable[[], float]


class Person:
    """Somebody with the dashboard open at `url`."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.tab: Tab = open_tab(browser, url, 1440, 900, "light", patience_ms=PATIENCE_MS)
        self.page = DashboardPage(self.tab, wait=False)
        self.searches = "search" in parse_qs(urlsplit(url).query).get("strategy", ())
        self.actions: Iterator[Action] | None = None
        self.rectangles: dict[str, tuple[float, float]] = {}
        """Where one lies in the plan of each strategy: looking for it takes the mouse longest."""

    def act(self) -> float:
        """Do the next thing, and return the seconds until its result was on the screen."""
        try:
            self.actions = self.actions or self._begin()
            self.page.page.wait_for_timeout(THINKS_MS)
            return next(self.actions)()
        except Error as error:
            shown = self.page.page.locator("body").inner_text()
            raise AssertionError(f"{self.page.page.url}: {self.tab.errors}\n{shown}") from error

    def _begin(self) -> Iterator[Action]:
        self.page.root.first.wait_for(timeout=PATIENCE_MS)
        self.tab.settle(PATIENCE_MS / 1000)
        if self.searches:
            return cycle((self._toggle,))
        return cycle([act for name in SWAPS for act in (self._swap(name), self._select)])

    def _swap(self, name: str) -> Action:
        def act() -> float:
            option = self.page.offered("Strategy", name)
            began = time.perf_counter()
            option.click()
            self.page.titled(name)
            return time.perf_counter() - began

        return act

    def _select(self) -> float:
        """A click on a rectangle, until its details are there."""
        self.page.root.locator(".stage").first.press("Escape")
        self.page.drawn("selected", "")
        title = self.page.title
        if title not in self.rectangles:
            self.rectangles[title] = self.page.find_rectangle(PLACES)
        x, y = self.rectangles[title]
        began = time.perf_counter()
        self.page.page.mouse.click(x, y)
        self.page.drawn("selected", "", other=True)
        self.page.details.first.wait_for()
        return time.perf_counter() - began

    def _toggle(self) -> float:
        """Cancel the search, or go on with it."""
        cancel, on = (self.page.page.get_by_role("button", name=name, exact=True) for name in BUTTONS)
        cancel.or_(on).first.wait_for()
        now, then = (cancel, on) if cancel.count() else (on, cancel)
        began = time.perf_counter()
        now.click()
        then.wait_for()
        return time.perf_counter() - began


def main() -> None:
    url, *addresses = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        people = [Person(browser, url + address) for address in addresses]
        for line in sys.stdin:
            seconds = [person.act() for _ in range(int(line)) for person in people]
            errors = [error for person in people for error in person.tab.errors]
            print(json.dumps({"seconds": seconds, "errors": errors}), flush=True)
        for person in people:
            person.tab.close()
        browser.close()


if __name__ == "__main__":
    main()
