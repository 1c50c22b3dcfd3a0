"""Measure what a server keeps after a thousand interactions and closed tabs, next to what it had before.

    python benchmarks/dashboard_growth.py [N]

Two rounds of N = 1,000 runs of the page at 24 addresses, without a browser, a new tab after each 40. The
first round fills the caches. The ratio compares the server's resident memory after the second round with
that before it.
"""

from __future__ import annotations

import sys
from itertools import cycle, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import serve  # noqa: E402
from tests.support.page_socket import PageSocket  # noqa: E402
from tests.support.processes import memory, server_of  # noqa: E402

STRATEGIES = ("linear_scan", "greedy_by_size", "greedy_by_breadth", "naive")
ADDRESSES = [
    f"doc=example:{model}&strategy={strategy}{more}"
    for model in ("gpt2", "resnet50")
    for strategy in STRATEGIES
    for more in ("", "&tab=All+buffers", "&find=mul")
]
A_TAB = 40
"""Interactions until a tab is closed and another one opened."""


def interact(url: str, times: int) -> None:
    """Run the page `times` times, tab after tab; RuntimeError where it shows an error."""
    addresses = islice(cycle(ADDRESSES), times)
    while tab := list(islice(addresses, A_TAB)):
        with PageSocket(url) as page:
            for address in tab:
                sent = page.run(address)
                if any(message.delta.new_element.WhichOneof("type") == "exception" for message in sent):
                    raise RuntimeError(f"{address}: the page shows an error")


def main() -> None:
    times = int(sys.argv[1]) if sys.argv[1:] else 1_000
    with serve(ROOT / "dashboard" / "app.py") as url:
        server = server_of(url)
        interact(url, times)
        before = memory(server, "VmRSS")
        interact(url, times)
        after = memory(server, "VmRSS")
    print("| interactions | resident before, MB | after, MB | ratio |\n|-|-|-|-|")
    print(f"| {times:,} | {before / 1e6:,.0f} | {after / 1e6:,.0f} | {after / before:.3f} |")


if __name__ == "__main__":
    main()
