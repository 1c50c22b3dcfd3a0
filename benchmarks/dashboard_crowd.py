"""How long people wait for a click when sixteen use one dashboard at the same time.

    python benchmarks/dashboard_crowd.py [N]

In four headless Chromiums, on the same cores as the server, eight people have GPT-2 open, four a list of
200,000 buffers, and four search for a better plan. Each acts N = 25 times; seconds from click to result.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import serve  # noqa: E402
from tests.support.crowd import Taken, crowd, write_files  # noqa: E402
from tests.support.processes import memory, server_of  # noqa: E402


def show(what: str, taken: list[float]) -> None:
    median, most = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
    print(f"| {what} | {len(taken)} | {median:.2f} | {most:.2f} | {max(taken):.2f} |")


def table(taken: Taken) -> None:
    print("| from the click, s | clicks | median | 95 % | most |\n|-|-|-|-|-|")
    for what in sorted({what for what, _ in taken}):
        show(what, [seconds for each, seconds in taken if each == what])
    show("all", [seconds for _, seconds in taken])


def main() -> None:
    times = int(sys.argv[1]) if sys.argv[1:] else 25
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder))
        with serve(ROOT / "dashboard" / "app.py", *files) as url, crowd(url) as act:
            act(1)  # by then everything is open
            table(act(times))
            print(f"\nThe server had at most {memory(server_of(url), 'VmHWM') / 1e6:,.0f} MB resident.")


if __name__ == "__main__":
    main()
