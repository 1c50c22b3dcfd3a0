"""Orders and bounds of small random graphs against all orders, by trying every set of ops:

    python -m tests.rewrites.brute_force [--graphs 5000] [--seed 0]

The graphs have views, writes in place, random numbers, effects and ops of two results. Each is ordered twice,
with writes in place and without, by the whole search and by the brief one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

from memplan_engine import SolveLimits, check_reorder, find_peak, reorder, to_problem
from memplan_engine.graph import Graph
from memplan_engine.rewrites.reuse import check_reuse, reuse, reused_problem
from memplan_engine.rewrites.reuse.in_place import take_over
from tests.rewrites.order_graphs import least_peak, random_graph

MOST_OPS = 11
"""Of a graph: the sets of more take seconds each."""


def peak_of(graph: Graph) -> int:
    """By the pipeline that plans it."""
    return find_peak(to_problem(graph)).nbytes


def judged(graph: Graph, in_place: bool, seen: Counter[str] | None = None) -> str:
    """What is wrong with the orders and bounds of `graph`; "" for nothing. `seen` counts what proves them."""
    least = least_peak(graph, take_over(graph) if in_place else None)
    for brief in (False, True):
        result = reorder(graph, SolveLimits(), in_place=in_place, brief=brief)
        what = "the brief search: " * brief
        if result.bound_bytes > least:
            return f"{what}a bound of {result.bound_bytes}, but an order has {least}"
        if result.live_after < least or (result.proved and result.live_after > least):
            return f"{what}{result.live_after} found, but {least} is best"
        if breaches := check_reorder(graph, result.graph, result.certificate):
            return f"{what}{breaches[0]}"
        if in_place:
            reused = reuse(result.graph, concat=False)
            measured = find_peak(reused_problem(reused)).nbytes
            if wrong := check_reuse(result.graph, reused.graph):
                return f"{what}{wrong[0]}"
        else:
            measured = peak_of(result.graph)
            if peak_of(graph) != result.live_before:
                return f"{what}{result.live_before} before, but the pipeline says {peak_of(graph)}"
        if measured != result.live_after:
            return f"{what}{result.live_after} found, but the pipeline says {measured}"
        if seen is not None:
            seen[str(result.proved_by) if result.proved else "not proved"] += 1
    return ""


def main() -> None:
    """Judge as many graphs as are asked for; exit code 1 at the first that is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, seen = Random(options.seed), Counter[str]()
    for number in range(options.graphs):
        seed, ops = draw.getrandbits(32), draw.randint(1, MOST_OPS)
        for in_place in (False, True):
            if wrong := judged(random_graph(seed, ops), in_place, seen):
                sys.exit(f"random_graph({seed}, {ops}), in_place={in_place}: {wrong}")
        if number % 500 == 499:
            print(f"{number + 1:,} graphs", flush=True)
    print(f"{options.graphs:,} graphs, nothing wrong; proved by {dict(seen.most_common())}")


if __name__ == "__main__":
    main()
