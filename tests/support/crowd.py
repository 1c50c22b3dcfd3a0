"""Sixteen people who use one dashboard, in four browsers.

    python -m tests.support.crowd URL ADDRESS…

is one of these browsers: it opens a context for each address, one person's each. Then for every line "N" on
stdin each person acts N times, in turns and with time to think, and a line of JSON goes to stdout: what each
did and how many seconds it took, and what the pages complained of. An action is another strategy, a
rectangle, or, for whoever searches, "Cancel" or "Keep solving"; it takes from the click until the result is
on the screen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
from playwright.sync_api import Browser, Error, sync_playwright

from memplan_engine import write_csv as save_csv
from tests import ROOT
from tests.support.browser import FLAGS, Tab, find_chromium, import_path, open_tab
from tests.support.buffer_list import hard_list
from tests.support.dashboard_page import DashboardPage

SWAPS = ("linear_scan", "greedy_by_size", "greedy_by_breadth", "greedy_by_area")
PLACES = [(0.1 + column / 20, 0.99 - row / 40) for row in range(8) for column in range(16)]
"""Where to look for a rectangle: at the bottom of the arena there is nearly always one."""
BUTTONS = ("Cancel", "Keep solving")
PATIENCE_MS = 240_000
"""Until a page is there: sixteen browsers begin at once on two cores."""
THINKS_MS = 3000
"""Before each action: four browsers have one action a second, as sixteen people who click every quarter of a
minute."""
BROWSERS = 4
"""A Chromium each: one that draws all sixteen pages has them wait for each other."""
PEOPLE = ("/?doc=example:gpt2",) * 2 + ("/?doc=file:long.csv", "/?doc=file:hard.csv&strategy=search")
"""What the people of each browser have open."""
Action = Callable[[], float]
Taken = list[tuple[str, float]]
"""What was done, and the seconds that it took."""


def write_files(folder: Path) -> list[Path]:
    """What people open beside the example: 200,000 buffers, and 300 that no search packs to the bound."""
    from benchmarks.dashboard_browser import write_csv

    write_csv(folder / "long.csv", 200_000, seed=1)
    save_csv(hard_list(np.random.default_rng(5)), folder / "hard.csv")
    return [folder / "long.csv", folder / "hard.csv"]


@contextmanager
def crowd(url: str) -> Iterator[Callable[[int], Taken]]:
    """Open sixteen pages of the dashboard at `url`; yields what has everybody act so many times. Raises
    AssertionError where a page complains."""
    line = [sys.executable, "-m", "tests.support.crowd", url, *PEOPLE]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with ExitStack() as stack:
        browsers = [
            stack.enter_context(
                subprocess.Popen(
                    line, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(BROWSERS)
        ]
        yield lambda times: _act(browsers, times)
        for browser in browsers:
            assert browser.stdin
            browser.stdin.close()


def _act(browsers: list[subprocess.Popen[str]], times: int) -> Taken:
    for browser in browsers:
        print(times, file=browser.stdin, flush=True)
    lines = [browser.stdout.readline() for browser in browsers if browser.stdout]
    assert all(lines), "a browser has ended; what it said of that is above"
    answers = [json.loads(line) for line in lines]
    assert not [error for answer in answers for error in answer["errors"]]
    return [(what, seconds) for answer in answers for what, seconds in answer["taken"]]


class Person:
    """Somebody with the dashboard open at `url`."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.tab: Tab = open_tab(browser, url, 1440, 900, "light", patience_ms=PATIENCE_MS)
        self.page = DashboardPage(self.tab, wait=False)
        self.searches = "search" in parse_qs(urlsplit(url).query).get("strategy", ())
        self.actions: Iterator[tuple[str, Action]] | None = None
        self.rectangles: dict[str, tuple[float, float]] = {}
        """Where one lies in the plan of each strategy: looking for it takes the mouse longest."""

    def act(self) -> tuple[str, float]:
        """Do the next thing: what, and the seconds until its result was on the screen."""
        try:
            self.actions = self.actions or self._begin()
            self.page.page.wait_for_timeout(THINKS_MS)
            what, action = next(self.actions)
            return what, action()
        except Error as error:
            shown = self.page.page.locator("body").inner_text()
            raise AssertionError(f"{self.page.page.url}: {self.tab.errors}\n{shown}") from error

    def _begin(self) -> Iterator[tuple[str, Action]]:
        self.page.root.first.wait_for(timeout=PATIENCE_MS)
        self.tab.settle(PATIENCE_MS / 1000)
        if self.searches:
            return cycle([("the search is cancelled or goes on", self._toggle)])
        document = parse_qs(urlsplit(self.page.page.url).query)["doc"][0]
        return cycle(
            [
                action
                for name in SWAPS
                for action in (
                    (f"another strategy, {document}", self._swap(name)),
                    (f"a rectangle's details, {document}", self._select),
                )
            ]
        )

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
            taken = [person.act() for _ in range(int(line)) for person in people]
            errors = [error for person in people for error in person.tab.errors]
            print(json.dumps({"taken": taken, "errors": errors}), flush=True)
        for person in people:
            person.tab.close()
        browser.close()


if __name__ == "__main__":
    main()
