"""Searching the names of many buffers, as the filter of Inspect does, against one search a name.

    python -m benchmarks name_search [--names N …]

A pattern that cannot match a line break searches all names as one text; any other searches name by name. Both
find the same, which is asserted. Seconds are CPU time, the median of three runs, of 100,000 names by
default. The last row is a pattern that never ends: the dashboard stops it after the limit it names.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import memplan_dashboard  # noqa: E402, F401
import regex  # noqa: E402
from memplan_dashboard.views.inspect import buffer_filter  # noqa: E402

PATTERN, ENDLESS = r"layer7\..*99$", "(a+)+$"


def seconds_of(work: Callable[[], object]) -> float:
    """Return the median CPU seconds of three runs."""
    taken = []
    for _ in range(3):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def endless(count: int) -> None:
    """Search `count` names for a pattern that never ends."""
    names = [f"{'a' * 60}!{number}" for number in range(count)]
    try:
        buffer_filter._search(ENDLESS, names)
    except TimeoutError:
        return
    raise AssertionError(ENDLESS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=int, nargs="+", default=[100_000], help="how many names")
    for count in parser.parse_args().names:
        names = [f"layer{number % 97}.tensor_{number}" for number in range(count)]
        compiled = regex.compile(PATTERN, buffer_filter._FLAGS)
        found = [buffer_filter._search_as_one(PATTERN, names), buffer_filter._search_each(compiled, names)]
        assert np.array_equal(*found)
        as_one = seconds_of(partial(buffer_filter._search_as_one, PATTERN, names))
        each = seconds_of(partial(buffer_filter._search_each, compiled, names))
        limit, ended = buffer_filter._limit(count), seconds_of(partial(endless, count))
        print(
            f"{count:>9,} names, as one   {as_one:7.3f} s   {each / as_one:5.1f} times as fast as one by one"
        )
        print(
            f"{count:>9,} names, endless  {ended:7.3f} s   {ended / limit:5.2f} of its limit, {limit:.2f} s"
        )


if __name__ == "__main__":
    main()
