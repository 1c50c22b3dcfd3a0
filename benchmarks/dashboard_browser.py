"""How long the dashboard takes from a click until the result is drawn, in headless Chromium.

    python benchmarks/dashboard_browser.py [N]

Opening GPT-2 in a new browser context, swapping the strategy on it (each for the first time, so that it
really plans), opening a CSV of N = 200,000 buffers (each time another file, so that it is really read and
planned: by its address, and through the Import page), and a click on a rectangle until its details are
there. Seconds; medians of five. A swap is timed by the page itself, from the event of the click to the frame
with the new plan: the driver takes a tenth of a second to place its mouse.

Beside them stands what Streamlit itself takes here, a page of one button: to open it in a new context, and
from a click on the button to its text. A machine is as quick as these are: ours are quoted over them.
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
BARE = """import streamlit as st
st.write("pressed" if st.button("press") else "drawn")
"""
PRESS = """() => new Promise((done) => {
    const began = performance.now();
    document.querySelector('.stButton button').click();
    const look = () => document.body.innerText.includes('pressed')
        ? done((performance.now() - began) / 1e3) : requestAnimationFrame(look);
    look();
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


def bare(browser: Browser, url: str) -> tuple[Seconds, Seconds]:
    """A page of one button: from its address in a new browser to its text, and from a click to the other."""
    opening, pressing = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        tab = open_tab(browser, url, 1440, 900, "light")
        tab.page.get_by_text("drawn").first.wait_for()
        opening.append(time.perf_counter() - began)
        tab.settle()
        pressing.append(tab.page.evaluate(PRESS))
        tab.close()
    return opening, pressing


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
        peer = Path(folder) / "bare.py"
        peer.write_text(BARE)
        with (
            serve(app, *files[:REPEATS]) as url,
            serve(peer) as peer_url,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
            gpt2 = f"{url}/?doc=example:gpt2"
            with opened(browser, gpt2) as page:  # kernels and Chromium warm
                page.titled("auto")
            print("| from click to drawn, s | median | least | most | target |\n|-|-|-|-|-|")
            opening, pressing = bare(browser, peer_url)
            show("a Streamlit page of one button, in a new browser", opening)
            show("its button", pressing)
            show("GPT-2, in a new browser", arrivals(browser, gpt2), "2")
            show("another strategy on GPT-2", swaps(browser, gpt2), "0.25")
            show("a rectangle of GPT-2 → details", clicks(browser, gpt2), "0.15")
            show(f"a CSV of {count:,} buffers, by address", addresses(browser, url, files[:REPEATS]), "3.5")
            show("the same, uploaded → Inspect", imports(browser, url, files[REPEATS:]))
            show(f"a rectangle of {count:,} → details", clicks(browser, f"{url}/?doc=file:{files[0].name}"))
            browser.close()


if __name__ == "__main__":
    main()
