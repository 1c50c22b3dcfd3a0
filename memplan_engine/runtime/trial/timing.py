"""How long a program takes, beside its model and torch's interpreter, and which kinds of ops take it."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from memplan_engine.formats.memplan_json.run_format import KindEntry
from memplan_engine.graph import Graph
from memplan_engine.runtime.node_run import run_nodes
from memplan_engine.runtime.slab.insert_slab import OP

MOST_RUNS, LEAST_RUNS, WARMUP = 50, 3, 2
MOST_SECONDS = 3.0
KIND_RUNS = 5


def time_by_turns(
    calls: Mapping[str, Callable[[], Any]],
    restore: Callable[[], None] = lambda: None,
    *,
    warmup: int = WARMUP,
    runs: int | None = None,
) -> tuple[dict[str, float], int]:
    """The median seconds of each of `calls`, and of how many runs: one of each by turns, so that whatever
    else the machine does meets all of them alike, each first as often as the others. After `warmup` turns
    there are `runs` of them or, without, as many as fit into MOST_SECONDS (LEAST_RUNS to MOST_RUNS).
    `restore` is called before each and counts nowhere."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names, least, most = list(calls), runs or LEAST_RUNS, runs or MOST_RUNS
    begun, turn = time.perf_counter(), -warmup
    while turn < most and (turn < least or time.perf_counter() - begun < MOST_SECONDS):
        if turn == 0:
            begun = time.perf_counter()
        for place in range(len(names)):
            name = names[(place + turn) % len(names)]
            restore()
            start = time.perf_counter()
            calls[name]()
            if turn >= 0:
                taken[name].append(time.perf_counter() - start)
        turn += 1
    return {name: statistics.median(times) for name, times in taken.items()}, turn


def time_kinds(
    graph: Graph, plain: GraphModule, slab: GraphModule, inputs: Sequence[Any], restore: Callable[[], None]
) -> tuple[KindEntry, ...]:
    """Seconds by kind of op, the most first: each op timed by itself, the median of KIND_RUNS iterations."""
    kind_of = {op.name: op.kind for op in graph.ops}
    ops_of = Counter(kind_of.values())
    alone, inside = (_by_kind(module, inputs, restore, kind_of) for module in (plain, slab))
    kinds = [
        KindEntry(kind=kind, ops=n, plain=alone.get(kind, 0.0), slab=inside.get(kind, 0.0))
        for kind, n in ops_of.items()
    ]
    return tuple(sorted(kinds, key=lambda each: -max(each.plain, each.slab)))


def _by_kind(
    module: GraphModule, inputs: Sequence[Any], restore: Callable[[], None], kind_of: Mapping[str, str]
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
        restore()
        with torch.no_grad():
            run_nodes(module, inputs, around)
        for op, seconds in spent.items():
            taken[op].append(seconds)
    seconds_of: dict[str, float] = defaultdict(float)
    for op, times in taken.items():
        if op in kind_of:
            seconds_of[kind_of[op]] += statistics.median(times)
    return seconds_of
