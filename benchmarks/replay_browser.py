"""Time the drawing of a step of a replay in headless Chromium.

    python -m benchmarks replay_browser [--buffers N ...]

For each number of buffers (20, 200 and 2,000 by default): the median of 30 steps, from the key to the pixels,
in milliseconds, and its ratio to that of the first. A step should stay below 50 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from memplan_engine import make_problem, make_replay  # noqa: E402
from tests.dashboard.replay_view.mounted_replay import View  # noqa: E402
from tests.support.browser import FLAGS, find_chromium  # noqa: E402

STEPS = """() => {
    const canvas = document.querySelector('canvas.picture');
    const times = [];
    for (let i = 0; i < 30; i += 1) {
        const began = performance.now();
        const key = i % 3 ? 'ArrowRight' : 'PageUp';
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        canvas.getContext('2d').getImageData(0, 0, 1, 1);
        times.push(performance.now() - began);
    }
    return times;
}"""


def main() -> None:
    """Print the table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, nargs="+", default=[20, 200, 2_000], help="how many buffers")
    counts = parser.parse_args().buffers
    draw, first = np.random.default_rng(5), 0.0
    print(f"{'buffers':>8} {'step, ms':>9} {'÷ first':>8}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for count in counts:
            start = draw.integers(0, 1000, count)
            end = start + draw.integers(1, 120, count)
            problem = make_problem(start, end, draw.integers(1, 4000, count) * 64)
            page = browser.new_page()
            view = View(page, make_replay(problem, "greedy_by_size"), step=count - count // 20)
            taken = statistics.median(view.page.evaluate(STEPS))
            first = first or taken
            print(f"{count:>8,} {taken:>9.2f} {taken / first:>8.1f}")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
