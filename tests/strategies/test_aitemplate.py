"""AITemplate's memory planning, rule by rule, and byte for byte against a plain-Python rendering of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Graph, Op, make_plan
from memplan_engine.analysis.layout import UsageRecord, records_problem, usage_records
from memplan_engine.schedule import Schedule, multi_stream, sequential
from tests.support.graphs import graphs, make_graph

NET = make_graph(
    [
        Op("conv", "conv", ("x", "w"), ("a",)),  # step 0
        Op("flatten", "view", ("a",), ("v",)),  # step 1
        Op("slice", "view", ("v",), ("vv",)),  # step 2, a view of a view
        Op("gelu", "gelu", ("vv",), ("b",)),  # step 3
        Op("wt", "view", ("w",), ("t",)),  # step 4, a view of a constant
        Op("gemm", "gemm", ("b", "t"), ("c",)),  # step 5
        Op("side", "relu", ("x",), ("d",)),  # step 6, nobody reads it
        Op("tail", "relu", ("b",), ("e",)),  # step 7
    ],
    {"x": 10, "w": 1000, "a": 65, "b": 64, "c": 1, "d": 200, "e": 128},
    views={"v": "a", "vv": "a", "t": "w"},
    inputs=("x",),
    constants=("w",),
    outputs=("c", "e"),
)


def test_records_by_hand() -> None:
    assert usage_records(NET) == (
        UsageRecord("a", 0, 3, 128),  # views of views extend it to their last reader; 65 bytes rounded up
        UsageRecord("b", 3, 7, 64),
        UsageRecord("c", 5, 7, 64),  # an output, live to the last op
        UsageRecord("d", 6, 6, 256),  # without a reader: its own op only
        UsageRecord("e", 7, 7, 128),
    )  # no record for the input x, the constant w, or t, a view of w


def test_greedy_by_size_by_hand() -> None:
    plan = make_plan(records_problem(usage_records(NET)), "greedy_by_size")
    # d 256 at 0; a does not meet d: 0; e does not meet d: 0; b meets d, a, e: 256; c meets d, e, b: between
    # the top of d and b is nothing, so it goes behind b, at 320.
    assert dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True)) == {
        "a": 0, "b": 256, "c": 320, "d": 0, "e": 0
    }  # fmt: skip
    assert plan.arena_bytes == 384


def test_equal_sizes_are_placed_in_the_order_of_the_records() -> None:
    records = [UsageRecord("late", 5, 6, 64), UsageRecord("early", 0, 5, 64), UsageRecord("mid", 2, 5, 64)]
    plan = make_plan(records_problem(records[1:] + records[:1]), "greedy_by_size")
    assert dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True)) == {
        "early": 0, "mid": 64, "late": 128
    }  # fmt: skip


def test_naive_stacks_the_records() -> None:
    plan = make_plan(records_problem(usage_records(NET)), "naive")
    assert plan.offsets.tolist() == [0, 128, 192, 256, 512]
    assert plan.arena_bytes == 640


def test_simple_multi_stream_by_hand() -> None:
    #  level 0: conv wt side   1: flatten   2: slice   3: gelu   4: gemm tail
    records = {record.tensor: record for record in usage_records(NET, multi_stream(NET, 2))}
    #  steps: conv wt | side | flatten | slice | gelu | gemm tail
    assert records["a"] == UsageRecord("a", 0, 4, 128)
    assert records["d"] == UsageRecord("d", 1, 1, 256)
    assert (records["c"], records["e"]) == (UsageRecord("c", 5, 5, 64), UsageRecord("e", 5, 5, 128))
    assert records["b"] == UsageRecord("b", 4, 5, 64)


def their_levels(graph: Graph) -> dict[int, list[Op]]:
    """Rounds: each runs all ops whose inputs earlier rounds have made."""
    there = {*graph.inputs, *graph.constants}
    waiting = list(graph.ops)
    rounds: dict[Any, Any] = {}
    while waiting:
        now = [op for op in waiting if there.issuperset(op.inputs)]
        rounds[len(rounds)] = now
        waiting = [op for op in waiting if op not in now]
        there.update(name for op in now for name in op.outputs)
    return rounds


def their_steps(graph: Graph, most: int) -> list[list[Op]]:
    return [
        ops[at : at + most]
        for _, ops in sorted(their_levels(graph).items())
        for at in range(0, len(ops), most)
    ]


def their_records(graph: Graph, steps: list[list[Op]]) -> list[UsageRecord]:
    """Per tensor, then views folded into what they show."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    param = {home[name] for name in (*graph.inputs, *graph.constants)}
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    found: dict[str, list[int]] = {}
    for step, ops in enumerate(steps):
        for op in ops:
            for name in (*op.inputs, *op.outputs):
                if name in (*graph.inputs, *graph.constants):
                    continue
                first, last = found.get(name, (step, step))
                last = len(steps) - 1 if name in graph.outputs else max(last, step)
                found[name] = [min(first, step), last]
    for name, (_, last) in found.items():
        base = home[name]
        if base != name and base not in param:
            found[base][1] = max(found[base][1], last)
    return [
        UsageRecord(name, first, last, -(-nbytes[name] // 64) * 64)
        for name, (first, last) in found.items()
        if home[name] == name and nbytes[name]
    ]


def their_offsets(records: list[UsageRecord]) -> dict[str, int]:
    """Largest first, tightest gap among the tensors placed already that overlap in time."""
    offsets: dict[str, int] = {}
    placed: list[UsageRecord] = []
    for record in sorted(records, key=lambda record: -record.size):
        end, best, tightest = 0, None, 2**63
        for other in sorted(placed, key=lambda other: offsets[other.tensor]):
            if max(record.first_op, other.first_op) > min(record.last_op, other.last_op):
                continue
            gap = offsets[other.tensor] - end
            if record.size <= gap < tightest:
                tightest, best = gap, end
            end = max(end, offsets[other.tensor] + other.size)
        offsets[record.tensor] = end if best is None else best
        placed.append(record)
    return offsets


@given(graphs(in_place=False), st.integers(0, 4))
def test_records_and_offsets_are_theirs(graph: Graph, streams: int) -> None:
    steps = their_steps(graph, streams) if streams else [[op] for op in graph.ops]
    schedule: Schedule = multi_stream(graph, streams) if streams else sequential(graph)
    records = usage_records(graph, schedule)
    assert list(records) == their_records(graph, steps)
    problem = records_problem(records)
    plan = make_plan(problem, "greedy_by_size")
    assert dict(zip(plan.problem.names, plan.offsets.tolist(), strict=True)) == their_offsets(list(records))
    naive = make_plan(problem, "naive")
    sizes = [record.size for record in records]
    assert naive.offsets.tolist() == np.cumsum([0, *sizes])[: len(sizes)].tolist()
    assert naive.arena_bytes == sum(sizes)
