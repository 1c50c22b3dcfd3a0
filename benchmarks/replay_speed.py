"""Recording a replay of as many buffers as there may be, against planning them.

    python -m benchmarks replay_speed [--buffers N] [--seconds S]

For each strategy that can be replayed: CPU seconds of the recording, their ratio to those of the plan, and
whether it was recorded to its end. A recording has a limit of S seconds (2 by default).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from memplan_engine import MemplanError, make_plan, make_problem  # noqa: E402
from memplan_engine.replay.make import MOST_BUFFERS, make_replay, replayable  # noqa: E402
from memplan_engine.strategies.base import SolveLimits  # noqa: E402
from memplan_engine.warm_up import compile_kernels  # noqa: E402


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=MOST_BUFFERS, help="how many buffers")
    parser.add_argument("--seconds", type=float, default=2.0, help="the limit of each recording")
    asked = parser.parse_args()
    compile_kernels()
    draw, count = np.random.default_rng(0), asked.buffers
    start = draw.integers(0, 400, count)
    problem = make_problem(start, start + draw.integers(1, 200, count), draw.integers(1, 1 << 20, count))
    small = make_problem([0, 1], [2, 3], [4, 4])
    print(f"{count:,} buffers, a limit of {asked.seconds:g} s")
    print(f"{'strategy':<32} {'replay, s':>10} {'÷ plan':>8}")
    for name in replayable():
        make_replay(small, name)  # compiles
        begin = time.process_time()
        make_plan(problem, name, limits=SolveLimits(asked.seconds))
        planned = time.process_time() - begin
        begin, ending = time.process_time(), ""
        try:
            make_replay(problem, name, limits=SolveLimits(asked.seconds))
        except MemplanError as error:
            ending = f"   {error}"
        taken = time.process_time() - begin
        print(f"{name:<32} {taken:>10.2f} {taken / planned:>8.1f}{ending}", flush=True)


if __name__ == "__main__":
    main()
