"""The checker of orders and certificates: what it must not take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memplan_engine import SolveLimits, check_reorder, reorder
from memplan_engine.graph import Graph, Op
from memplan_engine.rewrites.order.certificate import (
    ArcKind,
    CasesProof,
    CutProof,
    FlowArc,
    OrderCertificate,
    ReturnedProof,
)
from memplan_engine.rewrites.order.check_reorder import OrderRule, check_certificate
from memplan_engine.rewrites.order.cut_bound import Cuts
from memplan_engine.rewrites.order.order_problem import order_problem
from memplan_engine.rewrites.order.order_search import ProvedBy
from memplan_engine.rewrites.reuse.in_place import take_over
from tests.support.graphs import make_graph


def two_branches() -> Graph:
    ops = (
        Op("up_a", "mix", ("x",), ("a",)),
        Op("up_b", "mix", ("x",), ("b",)),
        Op("down_a", "relu", ("a",), ("c",)),
        Op("down_b", "relu", ("b",), ("d",)),
        Op("join", "mix", ("c", "d"), ("y",)),
    )
    sizes = {"x": 5, "a": 10, "b": 10, "c": 10, "d": 10, "y": 1}
    return make_graph(ops, sizes, inputs=("x",), outputs=("y",))


def effects() -> Graph:
    """Random numbers, writes and effects, each with something that may not pass it."""
    ops = (
        Op("make", "mix", ("x",), ("t",)),
        Op("read", "mix", ("t",), ("u",)),
        Op("write", "add_", ("t",), (), ("t",)),
        Op("again", "mix", ("t",), ("v",)),
        Op("dice", "aten.rand", (), ("r",)),
        Op("more_dice", "aten.randn", (), ("s",)),
        Op("say", "print", ("u",), ()),
        Op("say_more", "print", ("v",), ()),
    )
    sizes = {"x": 1, "t": 2, "u": 2, "v": 2, "r": 2, "s": 2}
    return make_graph(ops, sizes, inputs=("x",), outputs=("r", "s"))


def in_order(graph: Graph, names: str) -> Graph:
    ops = {op.name: op for op in graph.ops}
    return replace(graph, ops=tuple(ops[name] for name in names.split()))


@pytest.mark.parametrize(
    ("order", "rule", "where"),
    [
        ("read make write again dice more_dice say say_more", OrderRule.MADE, "read"),
        ("make write read again dice more_dice say say_more", OrderRule.WRITES, "read"),
        ("make read again write dice more_dice say say_more", OrderRule.WRITES, "again"),
        ("make read write again more_dice dice say say_more", OrderRule.RANDOM, "more_dice"),
        ("make read write again dice more_dice say_more say", OrderRule.EFFECT, "say_more"),
        ("make read write again dice more_dice say", OrderRule.SAME, "net"),
        ("make read write again dice more_dice say say", OrderRule.SAME, "say_more"),
    ],
)
def test_a_wrong_order_is_named(order: str, rule: OrderRule, where: str) -> None:
    graph = effects()
    breaches = check_reorder(graph, in_order(graph, order))
    assert (breaches[0].rule, breaches[0].where) == (rule, where)
    assert where in str(breaches[0])


def test_an_order_that_keeps_everything_is_taken() -> None:
    graph = effects()
    assert check_reorder(graph, in_order(graph, "dice make read say more_dice write again say_more")) == ()


def test_a_graph_in_which_more_differs_is_refused() -> None:
    graph = effects()
    other = replace(graph, outputs=("r",))
    assert check_reorder(graph, other)[0].rule is OrderRule.SAME
    ops = (replace(graph.ops[0], kind="other"), *graph.ops[1:])
    assert check_reorder(graph, replace(graph, ops=ops))[0].where == "make"


def certificate_of(graph: Graph, in_place: bool = False) -> OrderCertificate:
    certificate = reorder(graph, SolveLimits(), in_place=in_place).certificate
    assert certificate is not None
    assert check_certificate(graph, certificate) == []
    return certificate


def chain() -> Graph:
    """3 bytes are held over ops that make 5 and 7: the worst is 15, at `two`."""
    ops = (
        Op("hold", "mix", ("x",), ("h",)),
        Op("one", "mix", ("h",), ("a",)),
        Op("two", "mix", ("a",), ("b",)),
        Op("end", "mix", ("b", "h"), ("y",)),
    )
    return make_graph(ops, {"x": 1, "h": 3, "a": 5, "b": 7, "y": 1}, inputs=("x",), outputs=("y",))


def with_arcs(
    certificate: OrderCertificate, change: Callable[[tuple[FlowArc, ...]], tuple[FlowArc, ...]]
) -> OrderCertificate:
    proof = certificate.proof
    assert isinstance(proof, CutProof)
    flows = tuple(replace(flow, arcs=change(flow.arcs)) for flow in proof.flows)
    return replace(certificate, proof=replace(proof, flows=flows))


def double(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return tuple(replace(arc, nbytes=2 * arc.nbytes) for arc in arcs)


def less_in_one(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return (replace(arcs[0], nbytes=arcs[0].nbytes - 1), *arcs[1:])


def negative(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return (*arcs, FlowArc(ArcKind.MAKES, "two", "b", -1))


def from_nowhere(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return (FlowArc(ArcKind.MAKES, "end", "y", 1), *arcs)


def backwards(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return (*arcs, FlowArc(ArcKind.WAITS, "one", "two", 1))


def not_a_user(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return tuple(replace(arc, tail="x") if arc.kind is ArcKind.TOUCHED else arc for arc in arcs)


def unknown(arcs: tuple[FlowArc, ...]) -> tuple[FlowArc, ...]:
    return tuple(replace(arc, head=f"no {arc.head}") for arc in arcs)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (double, OrderRule.ROOM),
        (less_in_one, OrderRule.KEPT),
        (negative, OrderRule.ARC),
        (from_nowhere, OrderRule.KEPT),
        (backwards, OrderRule.ARC),
        (not_a_user, OrderRule.ARC),
        (unknown, OrderRule.ARC),
        (lambda arcs: (), OrderRule.ENOUGH),
    ],
)
def test_a_changed_flow_is_refused(
    change: Callable[[tuple[FlowArc, ...]], tuple[FlowArc, ...]], rule: OrderRule
) -> None:
    certificate = certificate_of(chain())
    assert certificate.nbytes == 15
    assert rule in {breach.rule for breach in check_certificate(chain(), with_arcs(certificate, change))}


def test_a_larger_claim_is_refused() -> None:
    certificate = certificate_of(chain())
    breaches = check_certificate(chain(), replace(certificate, nbytes=16))
    assert [breach.rule for breach in breaches] == [OrderRule.ENOUGH]


def test_what_an_op_makes_does_not_count_twice() -> None:
    cuts = Cuts(order_problem(chain(), merge=False))
    proof = cuts.proof(3, 11)
    assert proof is not None
    assert check_certificate(chain(), OrderCertificate(11, proof)) == []
    own = FlowArc(ArcKind.MAKES, "end", "y", 1)
    twice = replace(proof.flows[0], arcs=(*proof.flows[0].arcs, own))
    breaches = check_certificate(chain(), OrderCertificate(12, replace(proof, flows=(twice,))))
    assert [breach.rule for breach in breaches] == [OrderRule.ENOUGH]


def test_a_flow_for_another_op_or_none_is_refused() -> None:
    certificate = certificate_of(chain())
    proof = certificate.proof
    assert isinstance(proof, CutProof)
    for wrong in (replace(proof, op="end"), replace(proof, op="nobody"), replace(proof, flows=())):
        assert check_certificate(chain(), replace(certificate, proof=wrong))


def test_each_case_has_to_be_proved() -> None:
    graph = two_branches()
    certificate = certificate_of(graph)
    proof = certificate.proof
    assert certificate.nbytes == 30
    assert isinstance(proof, CasesProof)
    assert len(proof.ops) == 2
    one, other = proof.ops
    # The case in which one comes first says nothing of the other, and one that is left out says nothing.
    for wrong in (
        replace(proof, proofs=proof.proofs[::-1]),
        replace(proof, proofs=proof.proofs[:1] * 2),
        replace(proof, proofs=proof.proofs[:1]),
        replace(proof, ops=proof.ops[:1], proofs=proof.proofs[:1]),
        replace(proof, ops=(one, one)),
        replace(proof, ops=(one, "nobody")),
        replace(proof, ops=(), proofs=()),
        replace(proof, is_first=not proof.is_first),
        proof.proofs[0],
    ):
        assert check_certificate(graph, replace(certificate, proof=wrong))
    # Of two ops the first is the one that is not the last.
    turned = replace(proof, ops=(other, one), is_first=not proof.is_first)
    assert check_certificate(graph, replace(certificate, proof=turned)) == []


def test_ops_with_effects_keep_their_order() -> None:
    """The last op prints `a`, after another one has printed what `down` makes: `a` is held until then."""
    ops = (
        Op("up", "mix", ("x",), ("a",)),
        Op("across", "mix", ("a",), ("b",)),
        Op("down", "mix", ("b",), ("c",)),
        Op("say", "print", ("c",), ()),
        Op("say_more", "print", ("a",), ()),
    )
    sizes = {"x": 5, "a": 10, "b": 1, "c": 7}
    graph = make_graph(ops, sizes, inputs=("x",))
    certificate = certificate_of(graph)
    assert certificate.nbytes == 10 + 1 + 7
    assert check_certificate(graph, replace(certificate, nbytes=19))
    # An op that only reads `a` may run first.
    free = make_graph((*ops[:-1], Op("read", "mix", ("a",), ("r",))), {**sizes, "r": 1}, inputs=("x",))
    assert certificate_of(free).nbytes == 10 + 1
    assert check_certificate(free, certificate)


def test_each_way_of_writing_over_an_input_has_to_be_proved() -> None:
    # `act` may write over what `big` has made: with that it needs 20 bytes, and 40 without.
    ops = (
        Op("big", "mix", ("x",), ("a",)),
        Op("act", "relu", ("a",), ("b",)),
        Op("small", "mix", ("b",), ("y",)),
    )
    graph = make_graph(ops, {"x": 5, "a": 20, "b": 20, "y": 1}, inputs=("x",), outputs=("y",))
    cuts = Cuts(order_problem(graph, merge=False, take_over=take_over(graph)))
    assert (cuts.bound(1), cuts.proof(1, 21)) == (20, None)
    proof = cuts.proof(1, 20)
    assert proof is not None
    assert [flow.over for flow in proof.flows] == ["", "a"]
    certificate = OrderCertificate(20, proof, in_place=True)
    assert check_certificate(graph, certificate) == []
    alone = replace(certificate, proof=replace(proof, flows=proof.flows[:1]))
    assert [breach.rule for breach in check_certificate(graph, alone)] == [OrderRule.WAYS]
    # Who does not say that ops write in place may not speak of it, and what holds without does not hold with.
    assert check_certificate(graph, replace(certificate, in_place=False))
    assert certificate_of(graph).nbytes == 40
    assert check_certificate(graph, replace(certificate_of(graph), in_place=True))


def test_what_is_returned_is_live_at_the_end_of_every_order() -> None:
    # While one is made the other two need not be there: one cut proves 8 at most, and 8 + 4 + 1 are returned.
    ops = tuple(Op(f"make {name}", "mix", ("x",), (name,)) for name in "abc")
    graph = make_graph(ops, {"x": 5, "a": 8, "b": 4, "c": 1}, inputs=("x",), outputs=("a", "b", "c"))
    result = reorder(graph, SolveLimits())
    assert (result.live_after, result.bound_bytes, result.proved_by) == (13, 13, ProvedBy.RETURNED)
    certificate = result.certificate
    assert certificate is not None
    assert (certificate.proof, certificate.flows, certificate.arcs) == (ReturnedProof(), (), 0)
    assert check_certificate(graph, certificate) == []
    assert [breach.rule for breach in check_certificate(graph, replace(certificate, nbytes=14))] == [
        OrderRule.ENOUGH
    ]
    # What is returned but made by no op counts for nothing.
    inputs_back = make_graph(ops, {"x": 5, "a": 8, "b": 4, "c": 1}, inputs=("x",), outputs=("a", "x"))
    assert check_certificate(inputs_back, replace(certificate, nbytes=8)) == []
    assert check_certificate(inputs_back, replace(certificate, nbytes=9)) != []
