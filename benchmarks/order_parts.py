"""What parts of the search for orders win, and how its constants were found.

    python -m benchmarks order_parts [--seconds 10]

On layered random graphs: the search with the free end placed first and without it; the best of seven
randomised greedy orders by noise, as a part of the one without noise; the nodes and processor seconds of
proofs by pairs of peaks that the search alone has proved; how far searches of parts of an order get, by their
width, where moves of blocks end; what proofs by the first or the last of some units add to one cut; and how
many units every order passes alone, at which a graph could be split.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import mean
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from memplan_engine import Graph, SolveLimits, reorder  # noqa: E402
from memplan_engine.kernels.order.greedy import greedy_order  # noqa: E402
from memplan_engine.rewrites.order import order_search  # noqa: E402
from memplan_engine.rewrites.order.both_ends import with_ending  # noqa: E402
from memplan_engine.rewrites.order.cases import CaseTree  # noqa: E402
from memplan_engine.rewrites.order.order_problem import OrderProblem, order_problem  # noqa: E402
from memplan_engine.rewrites.order.order_search import OrderSearch, ProvedBy, load_order_kernels  # noqa: E402
from memplan_engine.rewrites.order.pairs import PairSearch  # noqa: E402
from tests.rewrites.order_graphs import layered_graph  # noqa: E402

SEARCHED = ((250, 12), (250, 25), (1_000, 12), (1_000, 25), (1_000, 50))
DRAWN = ((250, 12), (500, 25), (1_000, 50))
PROVED = ((60, 8), (100, 8), (100, 12), (150, 12), (250, 12), (1_000, 12))
"""Ops and width of the graphs of each table."""
NOISES = (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0)
MOST_NODES = 2_000


def ends(seconds: float) -> Iterator[str]:
    for ops, width in SEARCHED:
        graph = layered_graph(1, ops, width)
        for name, ending in (("one end", lambda arrays, limit: arrays), ("both ends", with_ending)):
            began = time.process_time()
            with patch.object(order_search, "with_ending", ending):
                result = reorder(graph, SolveLimits(seconds))
            gap = f"gap {result.live_after / result.bound_bytes - 1:.2%}"
            cpu = f"{time.process_time() - began:.1f} s"
            yield f"{ops} ops, width {width}, {name}: {gap}, {result.states} sets, {cpu} of processor"


def noises() -> Iterator[str]:
    problems = [order_problem(layered_graph(seed, *size)) for seed in (1, 2, 3) for size in DRAWN]
    plain = [_greedy(problem, 0.0, 0) for problem in problems]
    for noise in NOISES:
        parts = [
            min(first, *(_greedy(problem, noise, draw) for draw in range(1, 8))) / first
            for problem, first in zip(problems, plain, strict=True)
        ]
        yield f"noise {noise}: {mean(parts):.4f}"


def _greedy(problem: OrderProblem, noise: float, draw: int) -> int:
    return problem.peak(greedy_order(problem.arrays, 0, noise, draw, True))


def proofs(seconds: float) -> Iterator[str]:
    for ops, width in PROVED:
        for seed in (1, 2, 3, 4):
            problem, limits = order_problem(layered_graph(seed, ops, width)), SolveLimits(seconds)
            search = OrderSearch(problem, limits)
            search.begin()
            with limits.running():
                search._exact(search.bound, order_search.POOL_BYTES // (ops + 64), seconds)
            if search.proved_by is not ProvedBy.SEARCH:
                continue
            for units in (16, 64):
                own, began = SolveLimits(seconds), time.process_time()
                with own.running():
                    pairs = PairSearch(problem, search.peak, search.order, own, units)
                    proved, tree = pairs.prove(MOST_NODES)
                found = "proved" if proved >= search.peak else f"{proved} of {search.peak}"
                found += f", {nodes(tree)} nodes, {time.process_time() - began:.2f} s"
                yield f"{ops} ops, width {width}, seed {seed}, {units} units: {found}"


def windows(seconds: float) -> Iterator[str]:
    for ops, width in SEARCHED:
        search = _searched(ops, width, seconds)
        with patch.object(order_search, "WINDOWS", ()), search.limits.running():
            search._improve(0, order_search.FIRST_SECONDS)
        said = [f"moves of blocks {search.peak}"]
        for units in order_search.WINDOWS:
            began = time.process_time()
            with patch.object(order_search, "WINDOWS", (units,)):
                search._search_windows(seconds)
            said.append(f"{units} units {search.peak} in {time.process_time() - began:.2f} s")
        yield f"{ops} ops, width {width}: {', '.join(said)}"


def cases(seconds: float) -> Iterator[str]:
    for ops, width in SEARCHED:
        search = _searched(ops, width, seconds)
        with search.limits.running():
            search._improve(0, order_search.FIRST_SECONDS)
            search._cut()
            cut, began = search.peak / search.bound - 1, time.process_time()
            search._prove_ends(seconds)
        gap, took = search.peak / search.bound - 1, time.process_time() - began
        yield f"{ops} ops, width {width}: gap {cut:.2%} by one cut, {gap:.2%} by cases, {took:.2f} s"


def _searched(ops: int, width: int, seconds: float) -> OrderSearch:
    search = OrderSearch(order_problem(layered_graph(1, ops, width)), SolveLimits(3 * seconds))
    search.begin()
    with search.limits.running():
        search._rules()
        search._cut(seconds=order_search.FIRST_SECONDS)
    return search


def nodes(tree: CaseTree) -> int:
    return 1 + sum(map(nodes, tree.cases))


def passed_alone(graph: Graph) -> tuple[int, int]:
    """How many units there are, and how many of them are before or after each other one in every order."""
    problem = order_problem(graph)
    arrays, count = problem.arrays, len(problem.units)
    above = [0] * count
    for unit in range(count):
        for other in arrays.before[arrays.before_of[unit] : arrays.before_of[unit + 1]].tolist():
            above[unit] |= above[other] | 1 << other
    below = [0] * count
    for unit, bits in enumerate(above):
        for other in range(unit):
            below[other] += bits >> other & 1
    return count, sum(above[unit].bit_count() + below[unit] == count - 1 for unit in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    load_order_kernels()
    seconds = options.seconds
    for line in chain(ends(seconds), noises(), proofs(seconds), windows(seconds), cases(seconds)):
        print(line, flush=True)
    for ops, width in SEARCHED:
        count, alone = passed_alone(layered_graph(1, ops, width))
        print(f"{ops} ops, width {width}: {alone} of {count} units are passed alone")


if __name__ == "__main__":
    main()
