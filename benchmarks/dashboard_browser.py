"""How long the dashboard takes from a click until the result is drawn, in headless Chromium.

    python benchmarks/dashboard_browser.py [N]

Opening GPT-2 in a new browser context, swapping the strategy on it (each for the first time, so that it
really plans), opening a CSV of N = 200,000 buffers (each time another file, so that it is really read and
planned: by its address, and through the Import page), and a click on a rectangle until its details are there.
Seconds; medians of five. Last, what moves while GPT-2 appears: the sum of its layout shifts. A swap is timed
by the page itself, from the event of the click to the frame with the new plan: the driver takes a tenth of a
second to place its mouse.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
GRACE_SECONDS = 10.0
"""As `dashboard.background.scheduler` has it."""
sys.path.insert(0, str(ROOT))

from tests.support.browser import FLAGS, find_chromium, open_tab, serve  # noqa: E402
from tests.support.dashboard_page import CHART, DashboardPage  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPEATS = 5
SWAPS = ("linear_scan", "greedy_by_size", "greedy_by_breadth", "greedy_by_area", "greedy_by_lifetime")
Seconds = list[float]
STOPWATCH = f"""title => {{
    window.clicked = new Promise((done) =>
        addEventListener('click', () => done(performance.now()), {{ capture: true, once: true }}));
    window.drawn = new Promise((done) => {{
        const look = () => {CHART}?.querySelector('.title')?.textContent === title
            ? done(performance.now()) : requestAnimationFrame(look);
        look();
    }});
}}"""
SHIFTED = """() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => resolve(sum), 500);
})"""
READ = "async () => (await window.drawn - await window.clicked) / 1e3"


def write_csv(path: Path, count: int, seed: int) -> None:
    """A buffer list: one made at each step, most of them short-lived, one in twenty up to 2,000 steps."""
    random = np.random.default_rng(seed)
    length = np.where(
        random.random(count) < 0.95, random.geometric(1 / 8, count), random.integers(1, 2_000, count)
    )
    size = 64 * np.exp2(random.uniform(0, 16, count)).astype(np.int64)
    rows = (f"t{i},{i},{i + length[i]},{size[i]}" for i in range(count))
    path.write_text("\n".join(["id,lower,upper,size", *rows, ""]))


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[DashboardPage]:
    """The dashboard in a tab of its own, not waited for."""
    tab = open_tab(browser, url, 1440, 900, "light")
    yield DashboardPage(tab, wait=False)
    tab.close()


def swaps(browser: Browser, url: str) -> Seconds:
    """Choosing another strategy until its plan is drawn."""
    taken = []
    with opened(browser, url) as page:
        page.titled("auto")
        page.settled()
        for name in SWAPS:
            option = page.offered("Strategy", name)
            page.page.evaluate(STOPWATCH, name)
            option.click()
            taken.append(page.page.evaluate(READ))
            page.settled()
    return taken


def addresses(browser: Browser, url: str, files: list[Path]) -> Seconds:
    """From the address of a file that nobody has opened until its plan is drawn, when the search on the last
    one has ended: it goes on until its page is long gone."""
    taken = []
    for file in files:
        time.sleep(GRACE_SECONDS + 2)
        began = time.perf_counter()
        with opened(browser, f"{url}/?doc=file:{file.name}") as page:
            page.titled("auto")
            taken.append(time.perf_counter() - began)
    return taken


def imports(browser: Browser, url: str, files: list[Path]) -> Seconds:
    """From giving a file to the Import page until Inspect, to which it leads on by itself, has drawn it."""
    taken = []
    for file in files:
        with opened(browser, f"{url}/import?doc=example:teaching_gaps") as page:
            page.titled("auto")
            page.settled()
            chosen = page.page.locator("input[type=file]")
            began = time.perf_counter()
            chosen.set_input_files(file)
            page.page.get_by_text("Fragmentation at peak").first.wait_for()
            page.titled("auto")
            taken.append(time.perf_counter() - began)
    return taken


def arrivals(browser: Browser, url: str) -> Seconds:
    """From the address, in a browser that has not been here, until the plan is drawn; the server is warm."""
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        with opened(browser, url) as page:
            page.titled("auto")
            taken.append(time.perf_counter() - began)
    return taken


def clicks(browser: Browser, url: str) -> Seconds:
    """From a click on a rectangle until the details of its buffer are there."""
    taken = []
    with opened(browser, url) as page:
        page.titled("auto")
        page.settled()
        for place in range(REPEATS):
            left = 0.12 + 0.16 * place
            x, y = page.find_rectangle([(left + i / 200, 0.88 - j / 40) for i in range(12) for j in range(8)])
            before = page.data("selected") or ""
            began = time.perf_counter()
            page.page.mouse.click(x, y)
            page.drawn("selected", before, other=True)
            name = page.root.locator(".spoken").inner_text().partition(", ")[0]
            page.details.get_by_text(name, exact=True).first.wait_for()
            taken.append(time.perf_counter() - began)
            page.settled()
    return taken


def shifts(browser: Browser, url: str) -> Seconds:
    """The sum of the layout shifts while the page appears, a share of the window."""
    taken = []
    for _ in range(REPEATS):
        with opened(browser, url) as page:
            page.titled("auto")
            page.settled()
            taken.append(page.page.evaluate(SHIFTED))
    return taken


def show(what: str, taken: Seconds, target: str = "") -> None:
    print(
        f"| {what} | {statistics.median(taken):.2f} | {min(taken):.2f} | {max(taken):.2f} | {target} |",
        flush=True,
    )


def main() -> None:
    from playwright.sync_api import sync_playwright

    count = int(sys.argv[1].replace(",", "")) if sys.argv[1:] else 200_000
    app = ROOT / "dashboard" / "app.py"
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"buffers{seed}.csv" for seed in range(2 * REPEATS)]
        for seed, file in enumerate(files):
            write_csv(file, count, seed)
        with serve(app, *files[:REPEATS]) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
            gpt2 = f"{url}/?doc=example:gpt2"
            with opened(browser, gpt2) as page:  # kernels and Chromium warm
                page.titled("auto")
            print("| from click to drawn, s | median | least | most | target |\n|-|-|-|-|-|")
            show("GPT-2, in a new browser", arrivals(browser, gpt2), "2")
            show("another strategy on GPT-2", swaps(browser, gpt2), "0.25")
            show("a rectangle of GPT-2 → details", clicks(browser, gpt2), "0.15")
            show(f"a CSV of {count:,} buffers, by address", addresses(browser, url, files[:REPEATS]), "3.5")
            show("the same, uploaded → Inspect", imports(browser, url, files[REPEATS:]))
            show(f"a rectangle of {count:,} → details", clicks(browser, f"{url}/?doc=file:{files[0].name}"))
            show("layout shifts of GPT-2", shifts(browser, gpt2), "0.05")
            browser.close()


if __name__ == "__main__":
    main()
