"""Perfect packings: how many of them are packed into their optimum, and proven, within a time limit.

    python benchmarks/guillotine.py [--count 200] [--seeds 10] [--seconds 60] [--solvers NAME,…]
                                    [--minimalloc PATH] [--kinds guillotine,even,pinwheel]

Every step of these is full: the optimum is LOAD, and whoever reaches it has proved it. `guillotine` cuts any
piece in two by a full cut, `even` always the largest, `pinwheel` cuts it into four blades around a centre.
Deciding solvers are given the optimum as their capacity. Figures are medians (least–most) over all packings
of a kind, settled or not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.families import perfect  # noqa: E402
from benchmarks.families.instance import Instance  # noqa: E402
from benchmarks.peers import add_solver_options, chosen, complaints, solve_all  # noqa: E402
from benchmarks.solvers.catalogue import Question  # noqa: E402
from benchmarks.solvers.report import FAMILIES, show_families, show_headings  # noqa: E402
from memplan_engine.warm_up import compile_kernels  # noqa: E402

KINDS = ("guillotine", "even", "pinwheel")


def make(kind: str, count: int, seed: int) -> Instance:
    """One packing."""
    if kind == "pinwheel":
        return perfect.pinwheel(count, seed)
    return perfect.guillotine(count, seed, even=kind == "even")


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
    show_headings(FAMILIES[Question.MINIMISE])
    for kind in kinds:
        results, wrong = [], []
        for seed in range(options.seeds):
            groups = list(solve_all(make(kind, options.count, seed), solvers, options))
            answers = [result for own in groups for result in own]
            wrong += complaints(answers)
            results += answers
        show_families(Question.MINIMISE, results)
        if wrong:
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
