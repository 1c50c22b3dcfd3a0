"""Greedy by size on many buffers, against the same algorithm as a loop in plain Python.

    python benchmarks/greedy_speed.py [--million] [--seeds N] [--data FOLDER]

The loop does what AITemplate publishes: the largest buffer first; all buffers that have an offset in one list
of records sorted by it; one scan over that list finds the tightest gap. The tuned loop is the same without
records and calls, as fast as we could make it in Python. Both are quadratic and run up to 10,000 buffers; all
three give the same offsets, which is asserted. Seconds are CPU time on one thread with the kernels compiled:
of each draw the median of three runs (one where that takes more than 2 s), and of the draws, one a seed, the
median (least–most). Published instances are added where FOLDER (../shared/data) has them.
"""

from __future__ import annotations

import argparse
import bisect
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


from benchmarks.solvers.report import spread  # noqa: E402
from memplan_engine.bounds import lower_bound  # noqa: E402
from memplan_engine.files import load  # noqa: E402
from memplan_engine.planner import adopt  # noqa: E402
from memplan_engine.problem import Problem, make_problem  # noqa: E402
from memplan_engine.strategies import get_strategy  # noqa: E402
from memplan_engine.strategies.base import SolveLimits  # noqa: E402
from memplan_engine.verify.validate import validate_plan  # noqa: E402
from memplan_engine.warm_up import compile_kernels  # noqa: E402

GREEDY_BY_SIZE = get_strategy("greedy_by_size")

COUNTS = (1_000, 10_000, 100_000)
MOST_FOR_THE_LOOPS = 10_000
REPEATS = 3
SLOW = 2.0
HEADINGS = (
    "buffers",
    "lifetimes",
    "memplan, s",
    "loop, s",
    "times faster",
    "tuned loop, s",
    "times faster",
    "arena / LOAD",
    "validate, s",
)
FORMATS = (".4f", ".3f", ".0f", ".3f", ".0f", ".4f", ".3f")

Result = TypeVar("Result")


def mixed(count: int, long_lived: float, seed: int = 0) -> Problem:
    """`count` buffers, one made at each step, in units of 64 bytes up to 4 MiB, small ones most often.

    Most are read for the last time within a few steps (8 on average), a share `long_lived` anywhere up to the
    end, as training keeps activations for the backward pass.
    """
    random = np.random.default_rng([count, seed])
    start = np.arange(count)
    length = random.geometric(1 / 8, count)
    kept = random.random(count) < long_lived
    length[kept] = random.integers(1, count, count)[kept]
    size = 64 * np.exp2(random.uniform(0, 16, count)).astype(np.int64)
    return make_problem(start, np.minimum(start + length, count), size, name=f"{count}", alignment=64)


@dataclass
class Record:
    """A buffer's first and last step (inclusive), its size and, once it has one, its offset."""

    first: int
    last: int
    size: int
    offset: int = -1


def plain_loop(records: list[Record]) -> list[int]:
    """Greedy by size over records, as published."""
    placed: list[Record] = []
    for record in sorted(records, key=lambda record: (-record.size, record.first)):
        reach, best, tightest = 0, None, 2**63 - 1
        for other in placed:
            if max(record.first, other.first) <= min(record.last, other.last):
                gap = other.offset - reach
                if record.size <= gap < tightest:
                    best, tightest = reach, gap
                reach = max(reach, other.offset + other.size)
        record.offset = reach if best is None else best
        bisect.insort(placed, record, key=lambda record: record.offset)
    return [record.offset for record in records]


def tuned_loop(rows: list[tuple[int, int, int]]) -> list[int]:
    """Greedy by size over (start, end, size), without a call or an attribute in the inner loop."""
    offsets = [0] * len(rows)
    placed: list[tuple[int, int, int, int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (-rows[i][2], rows[i][0])):
        start, end, size = rows[index]
        reach, best, tightest = 0, -1, 2**63
        for offset, top, other_start, other_end in placed:
            if other_start < end and start < other_end:
                gap = offset - reach
                if size <= gap < tightest:
                    best, tightest = reach, gap
                if top > reach:
                    reach = top
        offsets[index] = best if best >= 0 else reach
        bisect.insort(placed, (offsets[index], offsets[index] + size, start, end))
    return offsets


def median_seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    """The median of REPEATS runs (of one, if it is slow), and what the last one gave."""
    seconds: list[float] = []
    while len(seconds) < REPEATS and sum(seconds) < SLOW:
        began = time.process_time()
        result = work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds), result


def measured(problem: Problem, with_loops: bool) -> tuple[float, ...]:
    """Of one draw: our seconds, then each loop's with how many times ours that is, arena over LOAD, and the
    validator's seconds. Not a number where there are no loops."""
    seconds, placement = median_seconds(lambda: GREEDY_BY_SIZE.place(problem, SolveLimits()))
    loops = [math.nan] * 4
    if with_loops:
        rows = list(zip(problem.start.tolist(), problem.end.tolist(), problem.size.tolist(), strict=True))
        plain, theirs = median_seconds(lambda: plain_loop([Record(a, b - 1, size) for a, b, size in rows]))
        tuned, ours = median_seconds(lambda: tuned_loop(rows))
        assert placement.offsets.tolist() == theirs == ours
        loops = [plain, plain / seconds, tuned, tuned / seconds]
    plan = adopt(problem, placement.offsets)
    began = time.process_time()
    assert validate_plan(plan).valid
    checked = time.process_time() - began
    return seconds, *loops, plan.arena_bytes / lower_bound(problem).nbytes, checked


def row(problems: Sequence[Problem], label: str, with_loops: bool) -> list[str]:
    """One line of the table: draws of one size."""
    draws = zip(*(measured(problem, with_loops) for problem in problems), strict=True)
    figures = [
        "" if math.isnan(values[0]) else spread(values, form)
        for values, form in zip(draws, FORMATS, strict=True)
    ]
    return [f"{len(problems[0]):,}", label, *figures]


def published(folder: Path) -> list[Problem]:
    """The instances below `folder`, as problems; none when there is no such folder."""
    loaded = [load(path) for path in sorted(folder.glob("*/*.csv"))]
    return [problem for problem in loaded if isinstance(problem, Problem)]


def show(rows: Iterable[list[str]]) -> None:
    """Print the rows as a Markdown table, each as it comes."""
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + "-|" * len(HEADINGS))
    for cells in rows:
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--million", action="store_true", help="one million buffers, too")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="draws of each size (default: 3)")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", metavar="FOLDER")
    options = parser.parse_args()
    compile_kernels()
    regimes = (("short", 0.0), ("a tenth long-lived", 0.1))
    counts = (*COUNTS, 1_000_000) if options.million else COUNTS
    show(
        row([mixed(count, share, seed) for seed in range(options.seeds)], label, count <= MOST_FOR_THE_LOOPS)
        for count in counts
        for label, share in regimes
    )
    instances = published(options.data)
    if instances:
        print()
        show(row([problem], problem.name, len(problem) <= MOST_FOR_THE_LOOPS) for problem in instances)


if __name__ == "__main__":
    main()
