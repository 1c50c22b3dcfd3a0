"""Recomputation: by hand, against all schedules of small random graphs, and what the checkers refuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import InputError, find_peak, load, to_problem
from memplan_engine.graph import Graph, Op, Phase, check_graph
from memplan_engine.kernels.order.block_moves import move_blocks
from memplan_engine.problem import Ints
from memplan_engine.rewrites.order.order_problem import peak_in_order
from memplan_engine.rewrites.recompute.check_recompute import check_recompute
from memplan_engine.rewrites.recompute.check_time_proof import check_time_proof
from memplan_engine.rewrites.recompute.other_orders import in_order
from memplan_engine.rewrites.recompute.recompute_problem import recompute_problem
from memplan_engine.rewrites.recompute.recomputed import Recomputation, recompute
from memplan_engine.rewrites.recompute.recomputed_graph import recomputed_graph
from memplan_engine.rewrites.recompute.time_proof import TimeArcKind
from memplan_engine.strategies.base import SolveLimits
from tests import ROOT
from tests.rewrites.order_graphs import random_graph
from tests.rewrites.recompute_graphs import OVER, least_extra
from tests.support.graphs import make_graph

NS = 1e-9
US = 1000
"""ns: bounds are rounded down to ns."""


def chain() -> Graph:
    """Three layers forward and back: each backward op reads what its layer made forwards."""
    forward = [
        Op(f"f{i}", "mix", (f"a{i - 1}" if i else "x",), (f"a{i}",), phase=Phase.FORWARD) for i in range(3)
    ]
    backward = [
        Op(f"b{i}", "mix", (f"a{i}", *([f"g{i + 1}"] if i < 2 else [])), (f"g{i}",), phase=Phase.BACKWARD)
        for i in (2, 1, 0)
    ]
    sizes = {"x": 1, "a0": 10, "a1": 10, "a2": 10, "g2": 1, "g1": 1, "g0": 1}
    return make_graph((*forward, *backward), sizes, inputs=("x",), outputs=("g0",))


def times(*nanoseconds: int) -> list[float]:
    return [each * NS for each in nanoseconds]


def test_a_chain_by_hand() -> None:
    """All three are live behind the forward pass: 30 bytes and a gradient. Within 21 one of them has to be
    made again: the first, from the input, in 5 µs. The second would need the first."""
    graph, seconds = chain(), times(5 * US, 7 * US, 9 * US, US, US, US)
    assert peak_in_order(graph) == 31
    found = recompute(graph, seconds, 21)
    assert found.graph is not None
    assert [op.name for op in found.graph.ops] == ["f0", "f1", "f2", "b2", "b1", "f0_again", "b0"]
    assert (found.peak_bytes, round(found.extra_seconds / NS)) == (21, 5 * US)
    assert found.bound_seconds == pytest.approx(5 * US * NS, rel=1e-3)
    assert found.graph.ops[5].phase is Phase.BACKWARD
    assert find_peak(to_problem(found.graph)).nbytes == 21
    # 10 of what is made and 10 of what is read: no schedule has fewer.
    assert recompute(graph, seconds, 19).is_impossible


def test_nothing_runs_again_where_all_fits() -> None:
    graph = chain()
    found = recompute(graph, times(5 * US, 7 * US, 9 * US, US, US, US), 31)
    assert found.graph is not None
    assert found.graph.ops == graph.ops
    assert (found.extra_seconds, found.bound_seconds) == (0, 0)


def test_views_of_what_is_made_again_are_views_of_that() -> None:
    ops = (
        Op("f", "mix", ("x",), ("a",)),
        Op("early", "aten.select", ("a",), ("v",)),
        Op("mid", "mix", ("v",), ("b",)),
        Op("late", "aten.select", ("a",), ("w",)),
        Op("last", "mix", ("b", "w", "v"), ("y",)),
    )
    graph = make_graph(
        ops, {"x": 1, "a": 10, "b": 30, "y": 1}, inputs=("x",), outputs=("y",), views={"v": "a", "w": "a"}
    )
    again = check_graph(recomputed_graph(graph, [0, 1, 2, 0, 3, 4]))
    assert [(op.name, op.inputs) for op in again.ops[3:]] == [
        ("f_again", ("x",)),
        ("late", ("a_again",)),
        ("early_again", ("a_again",)),
        ("last", ("b", "w", "v_again")),
    ]
    assert check_recompute(graph, again) == []
    assert {t.storage for t in again.tensors if t.name in ("w", "v_again")} == {"a_again"}


def aside() -> Graph:
    """`big` follows from `first` and `small`; `side`, of which that is not known, reads what `first` made."""
    ops = (
        Op("first", "mix", ("x",), ("a",)),
        Op("small", "mix", ("a",), ("c",)),
        Op("side", "mix", ("a",), ("b",)),
        Op("big", "mix", ("c",), ("d",)),
        Op("less", "mix", ("d",), ("e",)),
        Op("last", "mix", ("b", "e"), ("y",)),
    )
    sizes = {"x": 1, "a": 10, "b": 10, "c": 1, "d": 15, "e": 1, "y": 1}
    return make_graph(ops, sizes, inputs=("x",), outputs=("y",))


def test_a_bound_on_what_may_run_before_or_after() -> None:
    """When `big` runs, with 16 bytes of its own, `side` has run and what it made is held, or it has not and
    what it reads is: 26 bytes. Of the 10 that are there to be let go of 5 are too many for 21, and `first` is
    the cheapest to run again. Later it needs 21."""
    graph, seconds = aside(), times(4 * US, US, 6 * US, US, US, US)
    assert least_extra(graph, [4, 1, 6, 1, 1, 1], 21) == 4
    again = Recomputation(graph, seconds)
    assert again.bound(26, SolveLimits()).seconds == 0
    bound = again.bound(21, SolveLimits())
    assert bound.seconds == pytest.approx(2 * US * NS, rel=1e-2)
    assert bound.proof.op == "big"
    assert again.bound(15, SolveLimits()).seconds is None


@given(st.integers(0, 2**32), st.integers(1, 7), st.floats(0, 1))
@settings(deadline=None)
def test_all_schedules_of_small_graphs(seed: int, ops: int, share: float) -> None:
    graph, draw = random_graph(seed, ops), Random(seed)
    nanoseconds = [draw.randint(0, 9) for _ in graph.ops]
    capacity = int(share * peak_in_order(graph))
    least = least_extra(graph, nanoseconds, capacity)
    found = recompute(graph, times(*nanoseconds), capacity, SolveLimits(0.2))
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


@pytest.mark.parametrize(("seed", "share"), [(1, 0.9), (4, 0.8), (5, 0.7)])
def test_another_order_needs_less_time(seed: int, share: float) -> None:
    """In the order given ops have to run again, in another none."""
    graph, draw = random_graph(seed, 7), Random(seed)
    nanoseconds = [US * draw.randint(1, 9) for _ in graph.ops]
    capacity = int(share * peak_in_order(graph))
    assert least_extra(graph, nanoseconds, capacity) == 0
    in_order_given = Recomputation(graph, times(*nanoseconds), reorders=False)
    found = in_order_given.within(capacity, SolveLimits())
    assert found is not None
    assert found.extra_seconds > 0
    found = Recomputation(graph, times(*nanoseconds)).within(capacity, SolveLimits())
    assert found is not None
    assert found.extra_seconds == 0
    assert peak_in_order(found.graph) == found.peak_bytes <= capacity


@given(st.integers(0, 2**32), st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_a_problem_in_another_order_is_that_of_the_graph_in_it(seed: int, ops: int) -> None:
    graph, draw = random_graph(seed, ops), Random(seed)
    problem = recompute_problem(graph, [draw.random() for _ in graph.ops])
    order = move_blocks(problem.arrays, np.arange(ops), 0, 50, 5.0, seed % 1000, np.zeros(1, np.bool_))
    moved = in_order(problem, order)
    seconds = [problem.cost[op] / 1e9 for op in order]
    same = recompute_problem(replace(graph, ops=tuple(graph.ops[op] for op in order)), seconds)
    assert moved.graph == same.graph
    for name in ("cost", "again", "spoiled", "own"):
        assert getattr(moved, name).tolist() == getattr(same, name).tolist(), name
    numbers = {problem.storages.index(name): at for at, name in enumerate(same.storages)}
    for storage, at in numbers.items():
        assert _row(moved.arrays.users_of, moved.arrays.users, storage) == _row(
            same.arrays.users_of, same.arrays.users, at
        )
        assert moved.arrays.maker[storage] == same.arrays.maker[at]
    for op in range(ops):
        for of, items in (("before_of", "before"), ("after_of", "after")):
            rows = [sorted(_row(getattr(p.arrays, of), getattr(p.arrays, items), op)) for p in (moved, same)]
            assert rows[0] == rows[1]
        for of, items in (("used_of", "used"), ("made_of", "made")):
            row = [numbers[s] for s in _row(getattr(moved.arrays, of), getattr(moved.arrays, items), op)]
            assert sorted(row) == sorted(_row(getattr(same.arrays, of), getattr(same.arrays, items), op))


def _row(starts: Ints, items: Ints, row: int) -> list[int]:
    own: list[int] = items[starts[row] : starts[row + 1]].tolist()
    return own


@given(st.integers(0, 2**32), st.integers(2, 7), st.floats(0, 1))
@settings(deadline=None)
def test_bounds_hold_for_writes_in_place(seed: int, ops: int, share: float) -> None:
    draw = Random(seed)
    graph = random_graph(seed, ops)
    kinds = [draw.choice(OVER) if op.kind == "mix" and draw.random() < 0.7 else op.kind for op in graph.ops]
    changed = zip(graph.ops, kinds, strict=True)
    graph = replace(graph, ops=tuple(replace(op, kind=kind) for op, kind in changed))
    nanoseconds = [draw.randint(0, 9) for _ in graph.ops]
    capacity = int(share * peak_in_order(graph))
    least = least_extra(graph, nanoseconds, capacity, in_place=True)
    bound = Recomputation(graph, times(*nanoseconds), in_place=True).bound(capacity, SolveLimits(0.2)).seconds
    if bound is None:
        assert least is None
    elif least is not None:
        assert round(bound / NS) <= least


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_a_training_step(share: float) -> None:
    graph = load(ROOT / "example_graphs" / "bert_training_default.json")
    assert isinstance(graph, Graph)
    size = {tensor.name: tensor.nbytes for tensor in graph.tensors}
    seconds = [1e-12 * sum(size[name] for name in (*op.inputs, *op.outputs)) for op in graph.ops]
    capacity = int(share * peak_in_order(graph))
    found = recompute(graph, seconds, capacity)
    assert found.graph is not None
    assert found.bound_seconds is not None
    assert 0 < found.bound_seconds <= found.extra_seconds < 0.06 * found.seconds
    assert find_peak(to_problem(check_graph(found.graph))).nbytes == found.peak_bytes <= capacity


def proved() -> tuple[Graph, list[int]]:
    return chain(), [5 * US, 7 * US, 9 * US, US, US, US]


def test_the_checker_of_proofs_refuses_what_is_wrong() -> None:
    graph, nanoseconds = proved()
    proof, claimed = recompute(graph, times(*nanoseconds), 21).proof, 4.99 * US
    assert check_time_proof(graph, nanoseconds, proof, 21, claimed) == []
    assert check_time_proof(graph, nanoseconds, proof, 21, 5.01 * US)
    assert check_time_proof(graph, nanoseconds, proof, 22, claimed)
    assert check_time_proof(graph, [4 * US, *nanoseconds[1:]], proof, 21, claimed)
    assert check_time_proof(graph, nanoseconds, replace(proof, price=proof.price + 1000), 21, claimed)
    assert check_time_proof(graph, nanoseconds, replace(proof, price=Fraction(-1)), 21, claimed)
    assert check_time_proof(graph, nanoseconds, replace(proof, op="b0"), 21, claimed)
    assert check_time_proof(graph, nanoseconds, replace(proof, op="none"), 21, claimed)
    for place, arc in enumerate(proof.arcs):
        for other in (
            replace(arc, parts=arc.parts + 1),
            replace(arc, parts=-arc.parts),
            replace(arc, tail="x"),
            replace(arc, head="x"),
            *(replace(arc, kind=kind) for kind in TimeArcKind if kind is not arc.kind),
        ):
            arcs = (*proof.arcs[:place], other, *proof.arcs[place + 1 :])
            assert check_time_proof(graph, nanoseconds, replace(proof, arcs=arcs), 21, claimed), other
        assert check_time_proof(graph, nanoseconds, replace(proof, arcs=(*proof.arcs, arc)), 21, claimed)


def test_the_checker_of_graphs_refuses_what_is_wrong() -> None:
    graph = chain()
    good = recomputed_graph(graph, [0, 1, 2, 3, 4, 0, 5])
    assert check_recompute(graph, good) == []

    def with_ops(*ops: Op) -> list[str]:
        return check_recompute(graph, replace(good, ops=ops))

    again = good.ops[5]
    assert with_ops(*good.ops[:5], good.ops[6])  # what it reads is not made
    assert with_ops(*good.ops[:4], *good.ops[5:])  # b1 does not run
    assert with_ops(*good.ops[:5], replace(again, kind="other"), good.ops[6])
    assert with_ops(*good.ops[:5], replace(again, inputs=("a0",)), good.ops[6])
    assert check_recompute(graph, replace(good, outputs=("g1",)))
    small = tuple(replace(s, nbytes=9) if s.name == "a0_again" else s for s in good.storages)
    assert check_recompute(graph, replace(good, storages=small))
    shared = tuple(replace(t, storage="a1") if t.name == "a0_again" else t for t in good.tensors)
    assert check_recompute(graph, replace(good, tensors=shared))


def test_an_eager_run_and_a_graph_without_ops_are_refused() -> None:
    graph = chain()
    held = tuple(replace(s, held_by="b0") if s.name == "a0" else s for s in graph.storages)
    for other in (replace(graph, storages=held), replace(graph, ops=(), outputs=())):
        with pytest.raises(InputError, match="expected a captured graph"):
            recompute_problem(other, [0.0] * len(other.ops))


def test_what_may_not_run_again() -> None:
    ops = (
        Op("noise", "aten.rand", ("x",), ("n",)),
        Op("f", "mix", ("x",), ("a",)),
        Op("read", "mix", ("a",), ("b",)),
        Op("over", "aten.add_", ("a",), (), ("a",)),
        Op("last", "mix", ("n", "a", "b"), ("y",)),
    )
    graph = make_graph(ops, {"x": 1, "n": 4, "a": 4, "b": 4, "y": 1}, inputs=("x",), outputs=("y",))
    problem = recompute_problem(graph, times(1, 1, 1, 1, 1))
    assert problem.again.tolist() == [False, True, True, False, True]
    # f and read are spoiled when `over` has run.
    assert problem.spoiled.tolist()[1:3] == [3, 3]
    twice = recomputed_graph(graph, [0, 1, 2, 3, 1, 4])
    assert check_recompute(graph, twice)
    drawn = recomputed_graph(graph, [0, 0, 1, 2, 3, 4])
    assert check_recompute(graph, drawn) == []
    for left_out in ("noise_generator", "noise_again_set"):
        rest = tuple(op for op in drawn.ops if op.name != left_out)
        assert check_recompute(graph, replace(drawn, ops=rest)), left_out


@pytest.mark.parametrize("seconds", [[], [1.0] * 5, [1.0] * 5 + [-1.0], [1.0] * 5 + [float("nan")]])
def test_times_that_are_none(seconds: list[float]) -> None:
    with pytest.raises(InputError, match="a time for each of 6 ops"):
        recompute(chain(), seconds, 21)
