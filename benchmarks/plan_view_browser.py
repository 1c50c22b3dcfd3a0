"""How fast the rectangle chart draws, in headless Chromium.

    python benchmarks/plan_view_browser.py [N ...]

For each number of rectangles: from opening the page until the chart is drawn (server and transfer included),
from the data arriving in the browser until it is drawn, one redraw while zooming, one hover. The last two are
medians. Milliseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import FLAGS, find_chromium, serve  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

COUNTS = (2_000, 10_000, 200_000, 1_000_000)
REPEATS = 12
COLUMNS = ("rectangles", "page to drawn", "data to drawn", "zoom redraw", "hover")


def figure(chart: Locator, name: str) -> float:
    return float(chart.get_attribute(f"data-{name}") or "nan")


def measure(browser: Browser, url: str, count: int) -> list[float]:
    """One row of the table for `count` rectangles."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(f"{url}/?scene=many&n={count}")
    chart = page.locator(".plan-view[data-drawn]")
    chart.wait_for(timeout=120_000)
    opened = 1000 * (time.perf_counter() - began)
    # Of more than 200,000 the browser gets those that its picture shows.
    assert figure(chart, "drawn") == count or count > 200_000
    row = [count, opened, figure(chart, "load-ms"), *interact(page, chart)]
    page.close()
    return row


def interact(page: Page, chart: Locator) -> tuple[float, float]:
    """Medians of a redraw during a zoom (from the outside in, so the first are the worst) and of a hover."""
    box = page.locator("canvas.base").first.bounding_box()
    assert box is not None
    zooms, hovers = [], []
    for i in range(REPEATS):
        page.mouse.move(box["x"] + 300 + 40 * i, box["y"] + 200)
        hovers.append(figure(chart, "hover-ms"))
    page.locator(".stage").first.focus()
    for i in range(REPEATS):
        page.mouse.wheel(0, -20 if i % 2 == 0 else 19)
        page.wait_for_timeout(150)
        zooms.append(figure(chart, "draw-ms"))
    return statistics.median(zooms), statistics.median(hovers)


def main() -> None:
    from playwright.sync_api import sync_playwright

    counts = [int(argument.replace(",", "")) for argument in sys.argv[1:]] or list(COUNTS)
    print(" ".join(f"{title:>14}" for title in COLUMNS))
    with (
        serve(ROOT / "tests" / "dashboard" / "plan_view" / "plan_view_app.py") as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        measure(browser, url, 1_000)
        for count in counts:
            rectangles, opened, loaded, zoom, hover = measure(browser, url, count)
            print(f"{rectangles:14,} {opened:14,.0f} {loaded:14.1f} {zoom:14.1f} {hover:14.2f}")
        browser.close()


if __name__ == "__main__":
    main()
