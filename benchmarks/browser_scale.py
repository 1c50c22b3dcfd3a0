"""The dashboard with ten thousand, a hundred thousand and a million buffers, in headless Chromium.

    python benchmarks/browser_scale.py [N ...] [--strategy NAME] [--repeats K]

Each N is a buffer CSV in which a tenth as many steps run as there are buffers. Two tabs, one after the other:
the first opens a file that nobody has opened before (read, planned, drawn); the second opens it again, when
server and plan are there (page to picture: page load, transfer and drawing alone). In the second the pointer
hovers, zooms and pans, a regular expression is searched, a rectangle clicked. Milliseconds; medians.

- hover: from the pointer's event until the frame with its tooltip can be painted; in brackets the work.
- zoom, pan: from the event until the next picture; "sharp" until the picture is exact, which where the server
  draws includes asking it.
- search: from Enter until the chart has faded the rest. select: from the click until the details are there.
- payload: what came over the websocket until the first picture. tab, server: resident memory, MiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import FLAGS, find_chromium, open_tab, serve  # noqa: E402
from tests.support.dashboard_page import CHART, DashboardPage  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COUNTS = (10_000, 100_000, 1_000_000)
REPEATS = 9
PATTERN = r"/block7\..*9$/"
"""Between slashes: else it is text, of which no name has any."""
SERVER = "memplan_dashboard.serving.server"
PATIENCE_S = 300.0
Row = dict[str, str]

WATCH = f"""() => {{
  const root = {CHART};
  window.seen = [];
  new MutationObserver(() => window.seen.push([performance.now(), {{ ...root.dataset }}]))
    .observe(root, {{ attributes: true }});
  for (const name of ["pointermove", "wheel", "pointerdown"]) {{
    root.addEventListener(name, () => {{ window.began = performance.now(); }}, true);
  }}
  root.addEventListener("pointermove", () => {{
    const began = performance.now();
    requestAnimationFrame(() => {{
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {{ window.painted = performance.now() - began; }};
      channel.port2.postMessage(0);
    }});
  }});
}}"""


def name_of(buffer: int) -> str:
    """What the buffers are called."""
    return f"layer{buffer % 97}.block{buffer % 13}.tensor_{buffer}"


def write_csv(path: Path, count: int, seed: int = 0) -> None:
    """A buffer list: lifetimes and sizes log-normal, ten buffers made at each step."""
    random = np.random.default_rng(seed)
    steps = max(100, count // 10)
    start = random.integers(0, steps - 1, count)
    life = np.minimum(np.exp(random.normal(2.0, 1.3, count)).astype(np.int64) + 1, steps - start)
    size = np.minimum(np.exp(random.normal(9, 2, count)).astype(np.int64) // 64 + 1, 4096) * 64
    columns = zip(start.tolist(), (start + life).tolist(), size.tolist(), strict=True)
    with path.open("w") as file:
        file.write("id,lower,upper,size\n")
        file.writelines(
            f"{name_of(i)},{low},{high},{nbytes}\n" for i, (low, high, nbytes) in enumerate(columns)
        )


def spent(pattern: str) -> tuple[float, float]:
    """Resident memory (MiB) and CPU time so far (ms) of the largest process below this one whose command line
    has `pattern`."""
    found = [(0.0, 0.0)]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
            if pattern in words and _is_ours(int(process.name)):
                pages = int((process / "statm").read_text().split()[1])
                ticks = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
                cpu = 1000 * sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
                found.append((pages * os.sysconf("SC_PAGE_SIZE") / 2**20, cpu))
        except OSError:
            continue
    return max(found)


def _is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


class Scale:
    """One tab that looks at one large plan."""

    def __init__(self, browser: Browser, address: str, strategy: str) -> None:
        self.tab = open_tab(browser, "about:blank", 1440, 900, "light")
        self.received = 0
        self.tab.page.on("websocket", lambda socket: socket.on("framereceived", self._count))
        _, before = spent(SERVER)
        began = time.perf_counter()
        self.tab.page.goto(address)
        self.chart = DashboardPage(self.tab, wait=False)
        self.tab.page.wait_for_function(
            f"title => {CHART}?.dataset.drawn && {CHART}.querySelector('.title').textContent === title",
            arg=strategy,
            timeout=1000 * PATIENCE_S,
        )
        self.opened = 1000 * (time.perf_counter() - began)
        self.payload, self.server_cpu = self.received, spent(SERVER)[1] - before
        self.chart.page.wait_for_timeout(300)
        self.tab.settle(PATIENCE_S)

    def _count(self, frame: Any) -> None:
        self.received += len(frame)

    def watch(self) -> None:
        """Begin to note what the chart does; called once it is there."""
        self.chart.root.locator(".stage").first.scroll_into_view_if_needed()
        self.chart.page.evaluate(WATCH)
        box = self.chart.root.locator("canvas.base").first.bounding_box()
        assert box is not None
        self.left, self.top = box["x"] + 90, box["y"] + 20
        self.width, self.height = box["width"] - 120, 0.6 * box["height"]

    def at(self, share_x: float, share_y: float) -> tuple[float, float]:
        """A point of the plot."""
        return self.left + share_x * self.width, self.top + share_y * self.height

    def hover(self, repeats: int) -> tuple[float, float]:
        """Until the frame with the tooltip, and the work alone; medians."""
        frames, works = [], []
        for i in range(repeats):
            self.chart.page.mouse.move(*self.at(0.1 + 0.8 * i / repeats, 0.3 + 0.04 * (i % 7)))
            self.chart.page.wait_for_timeout(60)
            frames.append(float(self.chart.page.evaluate("window.painted")))
            works.append(float(self.chart.data("hover-ms") or "nan"))
        return statistics.median(frames), statistics.median(works)

    def change(self, act: Any) -> tuple[float, float]:
        """Do something that changes the picture; ms until the next picture, and until it is sharp."""
        page = self.chart.page
        page.evaluate("window.seen = []")
        act()
        page.wait_for_function(
            "() => window.seen.some(([, data]) => (data.sharp ?? 'true') === 'true')",
            timeout=1000 * PATIENCE_S,
        )
        return tuple(
            page.evaluate(
                """() => [window.seen[0][0] - window.began,
                window.seen.find(([, data]) => (data.sharp ?? 'true') === 'true')[0] - window.began]"""
            )
        )

    def zoom(self, repeats: int) -> tuple[float, float, float]:
        """Wheel turns from the whole inwards, each about a new point; medians."""
        page, taken = self.chart.page, []
        page.locator(".stage").first.focus()
        for i in range(repeats):
            page.mouse.move(*self.at(0.3 + 0.05 * (i % 6), 0.6))
            page.wait_for_timeout(50)
            taken.append(self.change(lambda: page.mouse.wheel(0, -120)))
            page.wait_for_timeout(100)
        return _medians(taken)

    def pan(self, repeats: int) -> tuple[float, float, float]:
        """Short drags; medians."""
        page, taken = self.chart.page, []
        for i in range(repeats):
            x, y = self.at(0.5, 0.5)
            page.mouse.move(x, y)
            page.mouse.down()
            taken.append(self.change(lambda x=x, y=y, i=i: page.mouse.move(x + (80 if i % 2 else -80), y)))
            page.mouse.up()
            page.wait_for_timeout(100)
        return _medians(taken)

    def search(self, pattern: str) -> float:
        """Search, until the chart shows what was found."""
        page = self.chart.page
        field = page.get_by_role("searchbox")
        field.fill(pattern)
        page.evaluate("window.seen = []")
        began = time.perf_counter()
        field.press("Enter")
        if pattern:
            page.locator(".find .count", has_text="·").wait_for(timeout=1000 * PATIENCE_S)
        page.wait_for_function(
            "() => window.seen.some(([, data]) => (data.sharp ?? 'true') === 'true')",
            timeout=1000 * PATIENCE_S,
        )
        taken = 1000 * (time.perf_counter() - began)
        self.tab.settle(PATIENCE_S)
        return taken

    def select(self, repeats: int) -> float:
        """Click rectangles, until the details of each are there; the median."""
        page, taken = self.chart.page, []
        for i in range(repeats):
            left = 0.15 + 0.7 * i / repeats
            x, y = self.chart.find_rectangle(
                [(left + j / 200, 0.99 - k / 40) for j in range(12) for k in range(4)]
            )
            before = self.chart.data("selected") or ""
            began = time.perf_counter()
            page.mouse.click(x, y)
            self.chart.drawn("selected", before, other=True)
            name = name_of(int(self.chart.data("selected") or 0))
            self.chart.details.get_by_text(name, exact=True).first.wait_for(timeout=1000 * PATIENCE_S)
            taken.append(1000 * (time.perf_counter() - began))
            self.tab.settle(PATIENCE_S)
        return statistics.median(taken)


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    pictures, sharp = zip(*pairs, strict=True)
    return statistics.median(pictures), statistics.median(sharp), max(sharp)


class _Told(dict[str, str]):
    """A row that says on stderr what it gets: one that takes minutes shows how far it is."""

    def __setitem__(self, name: str, figure: str) -> None:
        print(f"  {name}: {figure}", file=sys.stderr, flush=True)
        super().__setitem__(name, figure)


def measure(browser: Browser, address: str, strategy: str, repeats: int) -> Row:
    """All figures of one file, in the order of the table."""
    row: Row = _Told()
    first = Scale(browser, address, strategy)
    row["read, plan and picture (server's CPU)"] = f"{first.opened:,.0f} ({first.server_cpu:,.0f})"
    first.tab.close()
    scale = Scale(browser, address, strategy)
    row["page to picture (server's CPU)"] = f"{scale.opened:,.0f} ({scale.server_cpu:,.0f})"
    row["payload, MB"] = f"{scale.payload / 1e6:.1f}"
    row["in the browser: data to picture"] = f"{float(scale.chart.data('load-ms') or 'nan'):,.0f}"
    scale.watch()
    row["hover"] = "{:.1f} ({:.2f})".format(*scale.hover(repeats))
    row["zoom, sharp (slowest)"] = "{:.0f}, {:.0f} ({:.0f})".format(*scale.zoom(repeats))
    row["pan, sharp (slowest)"] = "{:.0f}, {:.0f} ({:.0f})".format(*scale.pan(repeats))
    scale.chart.page.keyboard.press("0")
    row["select → details"] = f"{scale.select(max(3, repeats // 3)):,.0f}"
    row["search"] = f"{scale.search(PATTERN):,.0f}"
    row["search off"] = f"{scale.search(''):,.0f}"
    row["tab, MiB"] = f"{spent('--type=renderer')[0]:,.0f}"
    row["server, MiB"] = f"{spent(SERVER)[0]:,.0f}"
    if scale.tab.errors:
        print("console:", *scale.tab.errors, sep="\n  ", file=sys.stderr)
    scale.tab.close()
    return row


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("counts", nargs="*", type=lambda text: int(text.replace(",", "")), default=COUNTS)
    parser.add_argument("--strategy", default="linear_scan")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"buffers{count}.csv" for count in options.counts]
        for file, count in zip(files, options.counts, strict=True):
            write_csv(file, count)
        with serve(ROOT / "dashboard" / "app.py", *files) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
            warm = Scale(browser, f"{url}/?doc=example:gpt2", "auto")
            warm.tab.close()
            address = f"{url}/?strategy={options.strategy}&doc=file:"
            rows = []
            for file in files:
                print(file.name, file=sys.stderr, flush=True)
                rows.append(measure(browser, f"{address}{file.name}", options.strategy, options.repeats))
            browser.close()
    print(f"| ms | {' | '.join(f'{count:,}' for count in options.counts)} |")
    print(f"|-|{'-|' * len(rows)}")
    for name in rows[0]:
        print(f"| {name} | {' | '.join(row[name] for row in rows)} |")


if __name__ == "__main__":
    main()
