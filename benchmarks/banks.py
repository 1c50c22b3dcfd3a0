"""Buffers in two memories: what memplan spills, against banked greedies as ExecuTorch and TVM's USMP have.

Each graph of `example_graphs` is planned into SRAM of a quarter and a half of its live peak, and DRAM beside
it. The traffic, bytes accessed in DRAM, is held against the bound. The peers are written anew from what they
publish: they know nothing of how often a buffer is accessed, and get the capacities and alignments that
memplan gets.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from memplan_engine.banked.banked_plan import traffic_of, with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.files import load
from memplan_engine.graph import Graph
from memplan_engine.kernels.types import Ints
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Problem, make_problem
from memplan_engine.profile import load_of
from memplan_engine.spilling.bank_planner import decide_banks
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.bank_checks import validate_banked

FOLDER = Path(__file__).parent.parent / "example_graphs"
SHARES = (0.25, 0.5)
"""Capacities of SRAM, as shares of the live peak."""
DRAWN = ((1_000, 500, 20), (10_000, 5_000, 30))
"""Buffers, steps and longest lives of lists that are drawn at random."""


class Pools:
    """Memories in the order in which they are tried, and what lies in them: rectangles of time and bytes."""

    def __init__(self, problem: Problem) -> None:
        assert problem.banks is not None
        self.problem, self.banks = problem, problem.banks.banks
        self.held: list[list[tuple[int, int, int, int]]] = [[] for _ in self.banks]
        self.bank_of = np.full(len(problem), -1, dtype=np.int64)

    def place(self, buffer: int) -> None:
        """Put `buffer` at the lowest free offset of the first pool that has room."""
        start, end, size = (int(getattr(self.problem, key)[buffer]) for key in ("start", "end", "size"))
        for bank, own in enumerate(self.banks):
            unit = int(np.lcm(self.problem.alignment[buffer], own.alignment))
            met = sorted((low, high) for s, e, low, high in self.held[bank] if s < end and start < e)
            offset = 0
            for low, high in met:
                if offset + size <= low:
                    break
                offset = max(offset, -(-high // unit) * unit)
            if own.capacity is None or offset + size <= own.capacity:
                self.held[bank].append((start, end, offset, offset + size))
                self.bank_of[buffer] = bank
                return


def executorch(problem: Problem) -> Ints:
    """Greedy by size, each buffer into the first bank that has room."""
    pools = Pools(problem)
    for buffer in np.lexsort((problem.start, -problem.size)).tolist():
        pools.place(buffer)
    return pools.bank_of


def usmp(problem: Problem) -> Ints:
    """TVM's `greedy_by_conflicts`: those with most conflicts in time first, of equals the larger ones; who
    finds no room in a pool goes on to the next of its candidates."""
    begins, ends = np.sort(problem.start), np.sort(problem.end)
    conflicts = np.searchsorted(begins, problem.end) - np.searchsorted(ends, problem.start, side="right")
    pools = Pools(problem)
    for buffer in np.lexsort((-problem.size, -conflicts)).tolist():
        pools.place(buffer)
    return pools.bank_of


def instances(names: Iterable[str]) -> Iterator[tuple[str, Problem]]:
    """The graphs `names` of `example_graphs`, and lists that are drawn."""
    for name in names:
        loaded = load(FOLDER / name)
        yield name, to_problem(loaded) if isinstance(loaded, Graph) else loaded  # type: ignore[misc]
    for n, steps, life in DRAWN:
        rng = np.random.default_rng(0)
        start = rng.integers(0, steps, n)
        end = start + 1 + rng.integers(0, life, n)
        yield f"{n:,} drawn", make_problem(start, end, rng.integers(1, 100, n), name="drawn")


def cases(names: Iterable[str]) -> Iterator[tuple[str, float, Problem]]:
    """The `instances`, each with SRAM of these SHARES of its live peak, and DRAM."""
    for name, problem in instances(names):
        for share in SHARES:
            sram = int(load_of(problem).peak * share)
            yield name, share, with_banks(problem, [Bank("sram", sram), Bank("dram")])


def ratio(traffic: int, bound: int) -> str:
    """The traffic over the bound: "1.042"."""
    return f"{traffic / bound:.3f}" if bound else ("1.000" if traffic == 0 else "∞")


def main() -> None:
    """Print a table: the bound, and each traffic over it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of each plan of memplan's")
    parser.add_argument(
        "--graphs",
        nargs="*",
        default=[
            "mobilenet_v2.json", "resnet50.json", "vit_b16.json", "gpt2.json", "bert_base.json",
            "whisper_tiny.json", "bert_training_default.json", "gpt2_training_step.json", "unet_training.csv",
        ],
    )  # fmt: skip
    arguments = parser.parse_args()
    table = Table("graph", "SRAM", "bound", "memplan", "proved", "seconds", "ExecuTorch's greedy", "USMP's")
    for name, share, banked in cases(arguments.graphs):
        begun = time.perf_counter()
        plan = decide_banks(banked, limits=SolveLimits(arguments.seconds)).plan
        seconds = time.perf_counter() - begun
        assert plan is not None
        assert validate_banked(plan, replay=False).valid
        bound = plan.bound.value
        table.add_row(
            name,
            f"{share:.0%}",
            f"{bound:,}",
            ratio(plan.traffic, bound),
            "yes" if plan.optimal else "",
            f"{seconds:.1f}",
            *(ratio(traffic_of(banked, peer(banked)), bound) for peer in (executorch, usmp)),
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
