"""Perfect packings: how many of them are packed into their optimum, and proven, within a time limit.

    python benchmarks/guillotine.py [--count 200] [--seeds 10] [--seconds 60] [--solvers NAME,…]
                                    [--minimalloc PATH] [--kinds guillotine,even,pinwheel]

Every step of these is full: the optimum is LOAD, and whoever reaches it has proved it. `guillotine` cuts any
piece in two by a full cut, `even` always the largest, `pinwheel` cuts it into four blades around a centre.
Deciding solvers are given the optimum as their capacity. CPU seconds are of those that were settled.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.families import perfect  # noqa: E402
from benchmarks.families.instance import Instance  # noqa: E402
from benchmarks.peers import add_solver_options, chosen, solve_all  # noqa: E402
from benchmarks.solvers.judge import Result  # noqa: E402
from benchmarks.solvers.report import show_headings, show_row  # noqa: E402
from memplan_engine.compiling import compile_kernels  # noqa: E402

KINDS = ("guillotine", "even", "pinwheel")
HEADINGS = ("kind", "buffers", "solver", "settled", "CPU s, median", "CPU s, most", "arena / bound, mean")


def make(kind: str, count: int, seed: int) -> Instance:
    """One packing."""
    if kind == "pinwheel":
        return perfect.pinwheel(count, seed)
    return perfect.guillotine(count, seed, even=kind == "even")


def show_kind(kind: str, count: int, results: list[Result]) -> None:
    """A line for each solver."""
    for label in dict.fromkeys(result.label for result in results):
        own = [result for result in results if result.label == label]
        seconds = sorted(result.answer.cpu for result in own if result.decided)
        times = [f"{statistics.median(seconds):.3f}", f"{seconds[-1]:.3f}"] if seconds else ["–", "–"]
        above = [result.arena / result.instance.bound for result in own if result.arena is not None]
        mean = f"{statistics.mean(above):.4f}" if above else "–"
        show_row([kind, f"{count:,}", label, f"{len(seconds)} of {len(own)}", *times, mean])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="buffers (default: 200)")
    parser.add_argument("--seeds", type=int, default=10, help="packings of each kind (default: 10)")
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time for each solve (default: 60)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which of them")
    add_solver_options(parser)
    options = parser.parse_args()
    compile_kernels()
    options.solvers = options.solvers or "auto"
    solvers = chosen(options)
    kinds = options.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        sys.exit(f"no kind {options.kinds!r}; there are: {', '.join(KINDS)}")
    show_headings(HEADINGS)
    for kind in kinds:
        packings = [make(kind, options.count, seed) for seed in range(options.seeds)]
        results = [result for packing in packings for result in solve_all(packing, solvers, options)]
        show_kind(kind, options.count, results)
        wrong = [
            f"{result.label} on {result.instance.name}: {result.wrong}" for result in results if result.wrong
        ]
        if wrong:
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
