"""Measure how late a search ends after its time limit, and after a cancel from another thread.

    python -m benchmarks limits_kept [--seconds S] [--runs N]

Each line is the worst of N runs on a problem that no strategy solves within the limit. The ratio compares the
delay with the time of one reference loop in the same run: a machine under load delays both.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.families import perfect
from memplan_engine import Problem, SolveLimits, make_plan, make_problem

STRATEGIES = "auto", "exact", "search"
LOOPS = 1_000_000
MOST_SECONDS = 60.0


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield problems of one part for branch and bound, of one for repair, and with long orders × fits."""
    yield "301 buffers", perfect.pinwheel(301, 1).problem
    yield "601 buffers", perfect.pinwheel(601, 1).problem
    random = np.random.default_rng(2)
    n = 50_000
    start = random.integers(0, n, n)
    yield (
        f"{n:,} buffers",
        make_problem(start, start + random.integers(1, 200, n), random.integers(1, 10**6, n)),
    )


def reference_seconds() -> float:
    """Return the seconds that a loop of LOOPS additions takes now."""
    began, total = time.perf_counter(), 0
    for number in range(LOOPS):
        total += number
    return time.perf_counter() - began


def delay_of_limit(problem: Problem, strategy: str, seconds: float) -> float:
    """Return the seconds from the time limit to the checked plan, 0 if the search ends before."""
    began = time.perf_counter()
    plan = make_plan(problem, strategy, limits=SolveLimits(seconds))
    return time.perf_counter() - began - seconds if plan.cut_short else 0.0


def delay_of_cancel(problem: Problem, strategy: str, seconds: float) -> float:
    """Return the seconds from a cancel in another thread, made after `seconds`, to the checked plan."""
    limits, cancelled = SolveLimits(MOST_SECONDS), [0.0]

    def cancel() -> None:
        cancelled[0] = time.perf_counter()
        limits.cancel()

    timer = threading.Timer(seconds, cancel)
    timer.start()
    make_plan(problem, strategy, limits=limits)
    ended = time.perf_counter()
    timer.cancel()
    return ended - (cancelled[0] or ended)


def main() -> None:
    """Print the delays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    delays: dict[str, Callable[[Problem, str, float], float]] = {
        "limit": delay_of_limit,
        "cancel": delay_of_cancel,
    }
    print(f"reference: {LOOPS:,} additions in {1000 * reference_seconds():.0f} ms")
    for name, problem in problems():
        for strategy in STRATEGIES:
            make_plan(problem, strategy, limits=SolveLimits(options.seconds))  # Compiles the kernels.
            for what, delay in delays.items():
                reference = reference_seconds()
                worst = max(delay(problem, strategy, options.seconds) for _ in range(options.runs))
                print(
                    f"{name:15} {strategy:7} {what:7} {1000 * worst:7.1f} ms after, "
                    f"{worst / reference:5.2f} of the reference"
                )


if __name__ == "__main__":
    main()
