"""Random numbers drawn again from a state of the generator: by hand, against all schedules of small graphs,
and what the checkers refuse."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import find_peak, to_problem
from memplan_engine.graph import Graph, Op, Phase, check_graph
from memplan_engine.op_kinds.generators import GENERATOR_BYTES
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.check_time_proof import check_time_proof
from memplan_engine.rewrites.recompute.fills import fills
from memplan_engine.rewrites.recompute.recompute_problem import recompute_problem
from memplan_engine.rewrites.recompute.recomputed import Recomputation, recompute
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.strategies.base import SolveLimits
from tests.rewrites.recompute_graphs import least_extra
from tests.support.graphs import make_graph

NS, US, KIB = 1e-9, 1000, 1024
SIZE = 100 * KIB


def dropped_out() -> Graph:
    """Two layers with dropout as it is on a CPU, forward and back: the masks are read in both."""
    ops: list[Op] = []
    for i in range(2):
        x = f"y{i - 1}" if i else "x"
        ops += [
            Op(f"e{i}", "aten.empty_like", (x,), (f"e{i}",)),
            Op(f"r{i}", "aten.bernoulli_", (f"e{i}",), (f"r{i}",), (f"e{i}",)),
            Op(f"d{i}", "aten.div_", (f"r{i}",), (f"d{i}",), (f"r{i}",)),
            Op(f"y{i}", "mix", (x, f"d{i}"), (f"y{i}",)),
        ]
    ops = [replace(op, phase=Phase.FORWARD) for op in ops]
    for i in (1, 0):
        read = (f"d{i}", *([f"g{i + 1}"] if i < 1 else [f"y{i}"]))
        ops.append(Op(f"g{i}", "mix", read, (f"g{i}",), phase=Phase.BACKWARD))
    views = {name: f"e{i}" for i in range(2) for name in (f"r{i}", f"d{i}")}
    sizes = {"x": 1, **{f"{k}{i}": SIZE for k in "ey" for i in range(2)}, "g1": KIB, "g0": KIB}
    return make_graph(tuple(ops), sizes, inputs=("x",), outputs=("g0",), views=views)


def seconds_of(graph: Graph) -> list[float]:
    """A microsecond for what makes a mask, draws or scales, 100 for any other op."""
    return [(1 if op.name[0] in "erd" else 100) * US * NS for op in graph.ops]


def test_a_mask_by_hand() -> None:
    """While y1 is made the masks and y0 are there, with what it makes 400 KiB. With the first mask drawn
    again, in three microseconds, they are 300 and a state of the generator."""
    graph = dropped_out()
    seconds = seconds_of(graph)
    assert peak_in_order(graph) == 4 * SIZE
    capacity = 3 * SIZE + GENERATOR_BYTES
    kept = recompute(graph, seconds, capacity)
    assert kept.graph is None or kept.extra_seconds > 50 * US * NS
    found = recompute(graph, seconds, capacity, redraws=True)
    assert found.graph is not None
    assert [op.name for op in found.graph.ops] == [
        *("e0", "r0_generator", "r0", "d0", "y0", "e1", "r1", "d1", "y1", "g1"),
        *("e0_again", "r0_again_set", "r0_again", "r0_again_put", "d0_again", "g0"),
    ]
    assert found.peak_bytes == find_peak(to_problem(found.graph)).nbytes == 3 * SIZE + GENERATOR_BYTES
    assert round(found.extra_seconds / NS) == 3 * US
    # At y1: one of 100 KiB has to go, but for what a state needs that the bound knows nothing of.
    assert found.bound_seconds == pytest.approx(3 * US * NS * (1 - GENERATOR_BYTES / SIZE), rel=1e-3)
    # A state has to fit, too.
    assert recompute(graph, seconds, 3 * SIZE, redraws=True).graph is None


def test_what_fills_a_storage_is_one_op() -> None:
    graph = dropped_out()
    assert fills(graph) == [(0, 1, 2), (4, 5, 6)]
    problem = recompute_problem(graph, seconds_of(graph), redraws=True)
    assert [op.name for op in problem.graph.ops] == ["e0", "y0", "e1", "y1", "g1", "g0"]
    assert problem.again.all()
    assert problem.cost.tolist()[:2] == [3 * US, 100 * US]
    assert problem.members[0] == (0, 1, 2)
    kept = recompute_problem(graph, seconds_of(graph))
    assert kept.again.tolist() == [op.name[0] not in "rd" for op in graph.ops]


@pytest.mark.parametrize(
    "between",
    [
        Op("o", "aten.add_", ("x",), (), ("x",)),
        Op("o", "mix", ("e0",), ("o",)),
        Op("o", "aten.rand", (), ("o",)),
    ],
)
def test_what_is_no_fill(between: Op) -> None:
    """Something writes over what the first member reads, reads what is filled in between, or draws between
    two that draw."""
    graph = dropped_out()
    ops = list(graph.ops)
    ops[2] = replace(ops[2], kind="aten.uniform_")
    ops.insert(2, between)
    views = {name: f"e{i}" for i in range(2) for name in (f"r{i}", f"d{i}")}
    sizes = {s.name: s.nbytes for s in graph.storages} | ({"o": 1} if between.outputs else {})
    changed = make_graph(ops, sizes, inputs=("x",), outputs=("g0",), views=views)
    found = [[changed.ops[index].name for index in own] for own in fills(changed)]
    assert found == ([["e0", "r0"]] if between.kind == "mix" else []) + [["e1", "r1", "d1"]]
    # The checkers go by the same.
    again = Recomputation(changed, [1e-6] * len(ops), redraws=True)
    for capacity in (2 * SIZE, 3 * SIZE):
        again.bound(capacity, SolveLimits(0.2))


def with_fills(seed: int, ops: int) -> Graph:
    """About `ops` ops over one input: some make results, draw them, write over others or are views, and some
    fill what `aten.empty_like` has made, with others between."""
    draw = Random(seed)
    size = {"x": 4}
    home, readable, made = {"x": "x"}, ["x"], list[Op]()
    later: list[tuple[str, str, str]] = []

    def fill_on() -> None:
        kind, before, after = later.pop(0)
        made.append(Op(f"fill_{after}", kind, (before,), (after,), (before,)))
        home[after] = home[before]
        if not later:
            readable.append(after)

    for number in range(ops):
        while later and draw.random() < 0.5:
            fill_on()
        name, read = f"t{number}", tuple(draw.sample(readable[-4:], min(len(readable), draw.choice([1, 2]))))
        kind = draw.choice(["mix", "mix", "aten.rand", "aten.add_", "aten.select", "fill", "fill", "fill"])
        kind = "mix" if kind == "fill" and later else kind
        if kind == "aten.add_":
            made.append(Op(f"op{number}", kind, read, (), read[:1]))
            continue
        size[name] = draw.choice([1, 2, 4, 4, 7]) * 10**6
        home[name] = name
        if kind == "fill":
            made.append(Op(f"op{number}", "aten.empty_like", read[: draw.choice([0, 1])], (name,)))
            steps = ["aten.bernoulli_", "aten.div_"][: draw.choice([1, 2, 2])]
            names = [name, *(f"{name}_{place}" for place in range(len(steps)))]
            later += zip(steps, names, names[1:], strict=False)
            continue
        if kind == "aten.select":
            read, home[name] = read[:1], home[read[0]]
            del size[name]
        made.append(Op(f"op{number}", kind, read, (name,)))
        readable.append(name)
    while later:
        fill_on()
    outputs = draw.sample(readable[1:], min(len(readable) - 1, draw.choice([0, 1, 2])))
    views = {name: storage for name, storage in home.items() if name != storage}
    return make_graph(made, size, views=views, inputs=("x",), outputs=outputs)


@given(st.integers(0, 2**32), st.integers(2, 6), st.floats(0, 1))
@settings(deadline=None)
def test_all_schedules_of_small_graphs(seed: int, ops: int, share: float) -> None:
    graph, draw = with_fills(seed, ops), Random(seed)
    nanoseconds = [draw.randint(0, 9) for _ in graph.ops]
    capacity = int(share * peak_in_order(graph))
    least = least_extra(graph, nanoseconds, capacity, redraws=True)
    seconds = [each * NS for each in nanoseconds]
    found = recompute(graph, seconds, capacity, SolveLimits(0.2), redraws=True)
    if found.is_impossible:
        assert least is None
    elif least is not None:
        assert found.bound_seconds is not None
        assert round(found.bound_seconds / NS) <= least
    if found.graph is not None:
        assert least is not None
        assert least <= round(found.extra_seconds / NS)
        assert peak_in_order(check_graph(found.graph)) == found.peak_bytes <= capacity
        assert check_recompute(graph, found.graph) == []


def test_the_checker_refuses_other_random_numbers() -> None:
    graph = dropped_out()
    good = recomputed_graph(graph, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 9])
    assert check_recompute(graph, good) == []
    place = {op.name: index for index, op in enumerate(good.ops)}

    def moved(name: str, before: str) -> list[str]:
        ops = [op for op in good.ops if op.name != name]
        ops.insert([op.name for op in ops].index(before), good.ops[place[name]])
        return check_recompute(graph, replace(good, ops=tuple(ops)))

    assert moved("r0_generator", "d0")  # kept behind the draw
    assert moved("r0_again_put", "r0_again")  # put back before it
    assert moved("r0_again", "r0_again_set")
    assert moved("r1", "r0")
    assert moved("d0_again", "r0_again") or moved("d0_again", "e0_again")
    ops = tuple(op for op in good.ops if op.name not in ("r0_again_set", "r0_again_put"))
    assert check_recompute(graph, replace(good, ops=ops))
    twice = replace(good.ops[place["d0"]], name="d0_again2", outputs=())
    assert check_recompute(graph, replace(good, ops=(*good.ops[:5], twice, *good.ops[5:])))
    other = replace(good.ops[place["r0_again_set"]], inputs=("y0",))
    assert check_recompute(
        graph, replace(good, ops=tuple(other if op.name == other.name else op for op in good.ops))
    )
    small = tuple(replace(s, nbytes=16) if s.name == "r0_generator" else s for s in good.storages)
    assert check_recompute(graph, replace(good, storages=small))


def test_the_checker_of_proofs_counts_what_has_surely_run() -> None:
    graph = dropped_out()
    nanoseconds = [round(each / NS) for each in seconds_of(graph)]
    capacity = 3 * SIZE + GENERATOR_BYTES
    found = recompute(graph, seconds_of(graph), capacity, redraws=True)
    assert found.bound_seconds is not None
    claimed = found.bound_seconds / NS
    assert claimed > 0
    proof = found.proof
    assert check_time_proof(graph, nanoseconds, proof, capacity, claimed, redraws=True) == []
    # Masks that are kept cannot be made again: the flow is none of that network.
    assert check_time_proof(graph, nanoseconds, proof, capacity, claimed)
    cheaper = [each // 2 for each in nanoseconds]
    assert check_time_proof(graph, cheaper, proof, capacity, claimed, redraws=True)
    within = replace(proof, op="r1")
    assert check_time_proof(graph, nanoseconds, within, capacity, claimed, redraws=True)


def test_a_draw_that_makes_its_own_storage_runs_again_alone() -> None:
    ops = (
        Op("a", "aten.rand", (), ("a",)),
        Op("b", "mix", ("a",), ("b",)),
        Op("c", "aten.rand", (), ("c",)),
        Op("d", "mix", ("a", "b", "c"), ("d",)),
    )
    graph = make_graph(ops, dict.fromkeys("abcd", SIZE), outputs=("d",))
    again = check_graph(recomputed_graph(graph, [0, 1, 2, 0, 3]))
    assert check_recompute(graph, again) == []
    names = [op.name for op in again.ops]
    assert names == ["a_generator", "a", "b", "c", "a_again_set", "a_again", "a_again_put", "d"]
    # What is drawn behind it is what it would have been.
    later = [again.ops[names.index(n)] for n in names if n != "c"]
    later.insert(names.index("a_again_put") - 1, again.ops[names.index("c")])
    assert check_recompute(graph, replace(again, ops=tuple(later)))
