"""Measure how soon the dashboard's jobs end when cancelled, and what a process that is ready saves a run.

    python benchmarks/dashboard_jobs.py

Seconds from the cancel of a search until its process is gone, the median of five, next to a whole search
process that only starts and ends; and of a run of the perceptron in a process that has loaded torch, next to
one in a new process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from memplan_dashboard.background.jobs import Job  # noqa: E402
from memplan_dashboard.background.run_job import PROCESS, Asked, RunJob  # noqa: E402
from memplan_dashboard.background.spare import Spare  # noqa: E402

from memplan_engine import SolveLimits, make_plan  # noqa: E402
from tests.support.buffer_list import hard_list  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

REPEATS = 5


def empty_process() -> float:
    """Seconds of a search process that is asked nothing."""
    line = [sys.executable, "-P", "-m", "memplan_dashboard.background.solver_process"]
    began = time.perf_counter()
    subprocess.run(line, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def cancel() -> float:
    """Seconds from the cancel of a search under way until its process is gone."""
    problem = hard_list(np.random.default_rng(5))
    job = Job("one", make_plan(problem, "search", limits=SolveLimits(0.1)), until=600.0)
    job.line_up()
    job.run()
    wait_until(lambda: job.snapshot().now.nodes > job.first.nodes)
    began = time.perf_counter()
    job.cancel()
    return time.perf_counter() - began


def run(spare: Spare | None = None) -> float:
    """Seconds of a run of the perceptron; in the process that `spare` has ready."""
    job = RunJob("one", Asked("perceptron"), spare=spare)
    began = time.perf_counter()
    job.run()
    wait_until(lambda: not job.state.is_active)
    if job.fault:
        raise RuntimeError(job.fault)
    return time.perf_counter() - began


def ready() -> Spare:
    """A process that has loaded torch and is asked nothing."""
    spare = Spare(PROCESS, lambda session: True)
    spare.want("one")
    time.sleep(30.0)
    return spare


def main() -> None:
    print("| s | took | reference | ratio |\n|-|-|-|-|")
    for what, taken, reference in (
        ("cancel of a search", cancel, empty_process),
        ("run in a process that is ready", lambda: run(ready()), run),
    ):
        seconds = statistics.median(taken() for _ in range(REPEATS))
        than = statistics.median(reference() for _ in range(REPEATS))
        print(f"| {what} | {seconds:.3f} | {than:.2f} | {seconds / than:.3f} |", flush=True)


if __name__ == "__main__":
    main()
