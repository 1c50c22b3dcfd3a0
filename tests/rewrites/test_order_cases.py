"""Proofs by what runs first or last of some ops: by hand, against the definition, and against all orders."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.graph import Graph, Op
from memplan_engine.kernels.order.arrays import OrderArrays
from memplan_engine.kernels.order.ends import first_ends, last_ends
from memplan_engine.rewrites.order.cases import prove_by_ends, write_out
from memplan_engine.rewrites.order.certificate import CasesProof, OrderCertificate
from memplan_engine.rewrites.order.check_reorder import check_certificate
from memplan_engine.rewrites.order.cut_bound import Cuts
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.rewrites.reuse.in_place import take_over
from tests.rewrites.order_graphs import least_peak, random_graph
from tests.support.graphs import make_graph

GOES_ON, STOPPED = np.zeros(1, np.bool_), np.ones(1, np.bool_)
seeds = st.integers(0, 2**32 - 1)


def branches(count: int) -> Graph:
    """Each goes up to 10 bytes and comes down to 1; their ends are joined."""
    names = "abcdef"[:count]
    ups = [Op(f"up {name}", "mix", ("x",), (name,)) for name in names]
    downs = [Op(f"down {name}", "mix", (name,), (f"{name}1",)) for name in names]
    join = Op("join", "mix", tuple(f"{name}1" for name in names), ("y",))
    sizes = {"x": 5, **dict.fromkeys(names, 10), **{f"{name}1": 1 for name in names}, "y": 1}
    return make_graph((*ups, *downs, join), sizes, inputs=("x",), outputs=("y",))


def mirrored(count: int) -> Graph:
    """One op makes a byte for each branch, which goes up to 10 bytes and ends there."""
    names = "abcdef"[:count]
    begin = Op("begin", "mix", ("x",), names)
    ups = [Op(f"up {name}", "mix", (name,), (f"{name}1",)) for name in names]
    downs = [Op(f"down {name}", "effect", (f"{name}1",), (f"{name}2",)) for name in names]
    sizes = {"x": 5, **dict.fromkeys(names, 1), **{f"{name}1": 10 for name in names}}
    sizes |= {f"{name}2": 0 for name in names}
    return make_graph((begin, *ups, *downs), sizes, inputs=("x",), outputs=())


def test_whichever_comes_down_last_has_the_others_beside_it() -> None:
    cuts = Cuts(order_problem(branches(4), merge=False))
    # 10 and the byte that it becomes, beside three bytes of the others; by cuts alone 11.
    assert max(cuts.bound(unit) for unit in range(9)) == 11
    tree = prove_by_ends(cuts, 14, GOES_ON)
    assert tree is not None
    assert (tree.is_first, sorted(tree.ends), tree.bound) == (False, [4, 5, 6, 7], 14)
    assert prove_by_ends(cuts, 15, GOES_ON) is None
    assert least_peak(branches(4)) == 14


def test_whichever_goes_up_first_has_the_others_beside_it() -> None:
    cuts = Cuts(order_problem(mirrored(3), merge=False))
    assert max(cuts.bound(unit) for unit in range(7)) == 11
    tree = prove_by_ends(cuts, 13, GOES_ON)
    assert tree is not None
    assert (tree.is_first, sorted(tree.ends)) == (True, [1, 2, 3])
    assert prove_by_ends(cuts, 14, GOES_ON) is None
    assert least_peak(mirrored(3)) == 13


def test_the_certificate_has_a_case_for_each() -> None:
    graph = branches(3)
    problem = order_problem(graph, merge=False)
    tree = prove_by_ends(Cuts(problem), 13, GOES_ON)
    assert tree is not None
    proof = write_out(tree, problem, problem, 13)
    assert isinstance(proof, CasesProof)
    assert (set(proof.ops), proof.is_first, len(proof.proofs)) == (
        *({"down a", "down b", "down c"}, False),
        3,
    )
    assert check_certificate(graph, OrderCertificate(13, proof)) == []
    assert check_certificate(graph, OrderCertificate(14, proof)) != []
    assert write_out(tree, problem, problem, 14) is None


def test_a_stopped_proof_is_none() -> None:
    assert prove_by_ends(Cuts(order_problem(branches(3))), 13, STOPPED) is None


def needs_at_least(o: OrderArrays, v: int, ran: set[int], waits: set[int]) -> float:
    """The fewest bytes with which v runs, after any closed set with all that `ran` and none that `waits`."""
    n, best = len(o.out), float("inf")
    before = [set(o.before[o.before_of[u] : o.before_of[u + 1]].tolist()) for u in range(n)]
    users = [set(o.users[o.users_of[e] : o.users_of[e + 1]].tolist()) for e in range(len(o.size))]
    others = [u for u in range(n) if u != v]
    for bits in product((False, True), repeat=n - 1):
        done = {u for u, bit in zip(others, bits, strict=True) if bit}
        closed = all(before[u] <= done for u in done) and before[v] <= done
        if not closed or not ran - {v} <= done or done & waits:
            continue
        live = sum(
            int(o.size[e])
            for e in range(len(o.size))
            if int(o.maker[e]) in done and (o.kept[e] or not users[e] <= done)
        )
        over = o.over[o.over_of[v] : o.over_of[v + 1]].tolist()
        free = any(not o.kept[e] and users[e] - {v} <= done for e in over)
        best = min(best, live + (0 if free else int(o.out[v])))
    return best


def plain_ends(o: OrderArrays, target: int, is_first: bool) -> set[int]:
    """By definition: what needs less is no end; what is left is the largest set."""
    n = len(o.out)
    before = [set(o.before[o.before_of[u] : o.before_of[u + 1]].tolist()) for u in range(n)]
    after = [{u for u in range(n) if v in before[u]} for v in range(n)]
    rest = set(range(n))
    while True:
        ends = {v for v in rest if not rest & (before if is_first else after)[v]}
        sets = (set(), rest) if is_first else (rest, set())
        less = [v for v in ends if needs_at_least(o, v, *sets) < target]
        if not less:
            return ends
        rest.remove(less[0])


@pytest.mark.parametrize("is_first", [True, False])
@given(seeds, st.integers(1, 8), st.integers(1, 60), st.booleans())
def test_the_ends_are_those_of_the_definition(
    is_first: bool, seed: int, ops: int, target: int, in_place: bool
) -> None:
    graph = random_graph(seed, ops)
    problem = order_problem(graph, merge=False, take_over=take_over(graph) if in_place else None)
    cuts = Cuts(problem)
    found = (first_ends if is_first else last_ends)(problem.arrays, cuts.network, target, GOES_ON)
    assert set(found.tolist()) == plain_ends(problem.arrays, target, is_first)


@given(seeds, st.integers(2, 10), st.booleans())
def test_no_order_has_less_than_is_proved_and_the_checker_agrees(seed: int, ops: int, in_place: bool) -> None:
    graph = random_graph(seed, ops)
    over = take_over(graph) if in_place else None
    least = least_peak(graph, over)
    sure = take_over(graph, doubts=False) if in_place else None
    problem, single = (order_problem(graph, merge=merge, take_over=sure) for merge in (True, False))
    for target in sorted({least + 1, least, least - 1, Random(seed).randint(1, least + 1)} - {0, -1}):
        tree = prove_by_ends(Cuts(problem), target, GOES_ON)
        if tree is not None:
            assert target <= least
            proof = write_out(tree, problem, single, target)
            if proof is not None:
                assert check_certificate(graph, OrderCertificate(target, proof, in_place)) == []
