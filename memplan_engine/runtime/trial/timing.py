"""How long a program takes, beside its model and torch's interpreter, and which kinds of ops take it."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from memplan_engine.graph import Graph
from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.slab.insert_slab import OP

MOST_RUNS, LEAST_RUNS, WARMUP = 50, 3, 2
MOST_SECONDS = 3.0
KIND_RUNS = 5


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of all `ops` ops of one kind in one iteration, by torch's allocator and in the slab."""

    kind: str
    ops: int
    plain: float
    slab: float


def time_by_turns(
    calls: Mapping[str, Callable[[], Any]], settle: Callable[[], None], seconds: float = MOST_SECONDS
) -> tuple[dict[str, float], int]:
    """The median seconds of each of `calls`, and of how many runs: one of each by turns, so that whatever
    else the machine does meets all of them alike, until `seconds` are over (LEAST_RUNS to MOST_RUNS).
    `settle` is called before each and counts nowhere."""
    for call in calls.values():
        for _ in range(WARMUP):
            settle()
            call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    begun, runs = time.perf_counter(), 0
    while runs < MOST_RUNS and (runs < LEAST_RUNS or time.perf_counter() - begun < seconds):
        for name, call in calls.items():
            settle()
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
        runs += 1
    return {name: statistics.median(times) for name, times in taken.items()}, runs


def time_kinds(
    graph: Graph, plain: GraphModule, slab: GraphModule, inputs: Sequence[Any], settle: Callable[[], None]
) -> tuple[KindTime, ...]:
    """Seconds by kind of op, the most first: each op timed by itself, the median of KIND_RUNS iterations."""
    kind_of = {op.name: op.kind for op in graph.ops}
    ops_of = Counter(kind_of.values())
    times = [_by_kind(module, inputs, settle, kind_of) for module in (plain, slab)]
    found = [KindTime(kind, ops_of[kind], *(each.get(kind, 0.0) for each in times)) for kind in ops_of]
    return tuple(sorted(found, key=lambda each: -max(each.plain, each.slab)))


def _by_kind(
    module: GraphModule, inputs: Sequence[Any], settle: Callable[[], None], kind_of: Mapping[str, str]
) -> dict[str, float]:
    stands_for = {node.name: node.meta.get(OP, node.name) for node in module.graph.nodes}
    taken: dict[str, list[float]] = defaultdict(list)

    def around(name: str, kind: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = call()
        spent[stands_for.get(name, name)] += time.perf_counter() - start
        return value

    for _ in range(KIND_RUNS):
        spent: dict[str, float] = defaultdict(float)
        settle()
        with torch.no_grad():
            run_nodes(module, inputs, around)
        for op, seconds in spent.items():
            taken[op].append(seconds)
    found: dict[str, float] = defaultdict(float)
    for op, times in taken.items():
        if op in kind_of:
            found[kind_of[op]] += statistics.median(times)
    return found
