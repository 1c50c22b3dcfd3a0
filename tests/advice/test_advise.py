"""What can be done about a peak, with the bytes worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memplan_engine import load, make_plan
from memplan_engine.advice.advise import advise
from memplan_engine.advice.commands import command_of
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.values import Candidate, OpChange
from memplan_engine.graph import Graph, Op
from memplan_engine.lifetimes import Unread
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.problem import make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.what_if.edits import Drop, Pin, Resize, Shorten
from tests import ROOT
from tests.support.graphs import make_graph

EXAMPLES = ROOT / "example_graphs"


def layers(count: int, nbytes: int = 640) -> Graph:
    """`count` layers of a maker that needs its whole input and a relu: the peak is two tensors, in each."""
    ops, sizes, last = [], {"x": nbytes}, "x"
    for number in range(count):
        module = f"net.layers.{number}"
        ops.append(Op(f"mm{number}", "aten.mm", (last,), (f"mm{number}",), module=module))
        ops.append(Op(f"relu{number}", "aten.relu", (f"mm{number}",), (f"relu{number}",), module=module))
        sizes |= {f"mm{number}": nbytes, f"relu{number}": nbytes}
        last = f"relu{number}"
    return make_graph(ops, sizes, inputs=("x",), outputs=(last,))


def joined() -> Graph:
    """a and r, which relu makes of b, joined to c: 128 bytes each, c 256."""
    ops = (
        Op("a", "aten.mm", ("x",), ("a",)),
        Op("b", "aten.mm", ("x",), ("b",)),
        Op("r", "aten.relu", ("b",), ("r",)),
        Op("c", "aten.cat", ("a", "r"), ("c",)),
        Op("s", "aten.sum", ("c",), ("s",)),
    )
    sizes = {"x": 64, "a": 128, "b": 128, "r": 128, "c": 256, "s": 4}
    return make_graph(ops, sizes, inputs=("x",), outputs=("s",))


def test_savings_do_not_add_up_and_both_are_planned() -> None:
    # As it is: a, r and c. In place: no less. Without copies: b beside c, which holds a and will hold r.
    # Both: c and its sum of 4 bytes, for b is made where r is written, inside of c.
    advice = advise(joined())
    assert advice.plan.arena_bytes == 128 + 128 + 256
    assert [(each.title, each.kinds, each.arena_bytes) for each in advice.suggestions] == [
        (
            "In place, and concat without copies",
            ("in_place", "concat"),
            256 + 4,
        ),
        ("Make 1 concatenation without copies", ("concat",), 256 + 128),
    ]
    assert [each.kinds for each in advice.rejected] == [("in_place",)]
    assert advice.suggestions[0].options == {"in_place": True, "concat": True}
    codes = [each.instead for change in advice.suggestions[0].code for each in change.ops]
    assert codes == [
        "F.relu(x, inplace=True)",
        "whole = torch.empty(…); make each part with out=whole[…]",
    ]


def test_one_relu_in_place_saves_its_result() -> None:
    advice = advise(layers(1))
    assert advice.plan.arena_bytes == 1280
    (best,) = advice.suggestions
    assert (best.title, best.kinds) == ("Write 1 result in place", ("in_place",))
    assert (best.saved_bytes, best.saved_peak_bytes, best.arena_bytes) == (640, 640, 640)
    assert (best.same_bits, best.plan.optimal, best.fits) == (True, True, None)
    assert [change.ops for change in best.code] == [(OpChange("aten.relu", 1, "F.relu(x, inplace=True)"),)]


def test_two_layers_keep_their_matrix_product_and_its_input() -> None:
    # In place, mm1 still reads relu0 while it writes: nothing is gained.
    advice = advise(layers(2))
    assert advice.suggestions == ()
    assert advice.rejected[0].title == "Write 2 results in place"
    assert advice.rejected[0].reason == "the peak stays: layers.0 · mm 640 B, layers.1 · mm 640 B at step 2"


@pytest.mark.parametrize(("capacity", "fits"), [(640, True), (639, False)])
def test_a_suggestion_says_whether_the_capacity_is_met(capacity: int, fits: bool) -> None:
    assert advise(layers(1), capacity=capacity).suggestions[0].fits is fits


def test_a_suggestion_plans_as_its_options_say() -> None:
    graph = load(EXAMPLES / "gpt2.json")
    best = next(each for each in advise(graph).suggestions if each.kinds == ("in_place",))
    assert best.how == Preparation(in_place=True)
    assert (best.title, best.saved_bytes) == ("Write 98 results in place", 12_582_912)
    assert make_plan(prepare(graph, best.how)).arena_bytes == best.arena_bytes == 40_894_464


@pytest.mark.parametrize(("little", "first"), [(9, "all other bits"), (10, "the same bits")])
def test_what_keeps_every_bit_stands_first_unless_it_saves_little(little: int, first: str) -> None:
    whole = make_problem([0, 0], [2, 2], [500, 500], names=["a", "b"])

    def propose(_: Situation) -> Iterator[Candidate]:
        yield Candidate(("large",), "all other bits", edits=(Resize("a", 100),), same_bits=False)
        yield Candidate(("small",), "the same bits", edits=(Resize("b", 500 - little),))

    # One per cent of 1,000 bytes are ten.
    advice = advise(whole, proposers=(propose,))
    assert advice.plan.arena_bytes == 1000
    assert advice.suggestions[0].title == first


def test_buffers_have_no_ops_to_rewrite() -> None:
    advice = advise(make_problem([0, 1], [2, 3], [5, 7], names=["a", "b"], name="list"))
    assert advice.suggestions == ()
    assert (
        advice.why_none
        == "A list of buffers has no ops that could be rewritten. The peak: b 7 B, a 5 B at step 1."
    )


def test_a_finished_plan_stays_as_it_is() -> None:
    advice = advise(make_plan(make_problem([0, 1], [2, 3], [5, 7], names=["a", "b"])))
    assert advice.why_none == "A finished plan is not replanned. The peak: b 7 B, a 5 B at step 1."


def test_what_is_cancelled_keeps_what_it_has() -> None:
    limits = SolveLimits()
    advice = advise(layers(1), limits=limits, watch=lambda _: limits.cancel())
    assert [each.saved_bytes for each in advice.suggestions] == [640]
    assert not advice.complete


def test_results_that_only_the_caller_wants_could_die_early() -> None:
    # a (100) is returned, and live beside b and c (500 each) at the peak; nobody but b reads it.
    ops = (
        Op("a", "scan", ("x",), ("a",)),
        Op("b", "scan", ("a",), ("b",)),
        Op("c", "scan", ("b",), ("c",)),
        Op("d", "scan", ("c",), ("d",)),
    )
    sizes = {"x": 8, "a": 100, "b": 500, "c": 500, "d": 4}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=("a", "d"))
    advice = advise(graph, Preparation(alignment=1))
    (best,) = advice.suggestions
    assert (best.title, best.saved_bytes, best.arena_bytes) == ("Do not return 1 result", 100, 1000)
    assert best.edits == (Shorten("a", 0, 2),)
    assert not best.same_bits


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        (Preparation(alignment=1, unread=Unread.HELD), "Free values that nobody reads at once"),
        (Preparation(alignment=256, round_sizes=True), "Do not round sizes up"),
        (Preparation(alignment=1, streams=2), "Run one op at a time"),
        (Preparation(alignment=256), "Align to 1 byte, not to 256"),
    ],
)
def test_what_a_plan_was_asked_for_can_be_taken_back(asked: Preparation, title: str) -> None:
    # f and g read x; only g's result is used.
    ops = (Op("f", "f", ("x",), ("a",)), Op("g", "g", ("x",), ("b",)), Op("h", "h", ("b",), ("c",)))
    sizes = {"x": 1, "a": 40, "b": 20, "c": 30}
    graph = make_graph(ops, sizes, inputs=("x",), outputs=("c",))
    found = {each.title: each for each in advise(graph, asked).suggestions}
    each = found[title]
    assert each.arena_bytes == make_plan(prepare(graph, each.how)).arena_bytes
    assert each.arena_bytes + each.saved_bytes == make_plan(prepare(graph, asked)).arena_bytes


def test_a_proposer_of_ones_own_is_asked_as_the_others() -> None:
    def propose(situation: Situation) -> Iterator[Candidate]:
        yield Candidate(("own",), "Drop the result", edits=(Drop(situation.problem.names[-1]),))

    (best,) = advise(layers(1), proposers=(propose,)).suggestions
    assert (best.kinds, best.saved_bytes) == (("own",), 640)


def test_what_cannot_be_made_is_rejected_with_the_reason() -> None:
    def propose(situation: Situation) -> Iterator[Candidate]:
        yield Candidate(("own",), "Drop nothing", edits=(Drop("no such buffer"),))

    (rejected,) = advise(layers(1), proposers=(propose,)).rejected
    assert rejected.reason == (
        "net: edit 1 (drop 'no such buffer'), field buffer: no such buffer, "
        "expected one of the problem's, or a part"
    )


def test_after_the_limits_no_proposer_is_asked_any_more() -> None:
    asked, limits = [], SolveLimits()

    def endless(situation: Situation) -> Iterator[Candidate]:
        for number in range(100):
            asked.append(number)
            if number == 4:
                limits.cancel()
            yield Candidate(("own",), f"Try {number}", edits=(Pin("mm0", None),))

    advice = advise(layers(1), limits=limits, proposers=(endless, endless))
    assert not advice.complete
    assert asked == [0, 1, 2, 3, 4]
    assert advice.why_none == "It was stopped before anything that saves was found."


def test_another_order_is_proposed_alone_and_planned_together_with_writes_in_place() -> None:
    """GPT-2: 12 MiB by either alone, 24 MiB by both; the ops that move are named in the title."""
    advice = advise(load(EXAMPLES / "gpt2.json"))
    first, *others = (each for each in advice.suggestions if each.same_bits)
    assert (first.title, set(first.kinds)) == ("In place, and reordered ops", {"in_place", "reorder"})
    assert first.arena_bytes == 28_311_552
    assert {each.title: each.saved_bytes for each in others} == {
        "Write 98 results in place": 12_582_912,
        "Reorder 16 ops": 12_582_912,
    }
    assert "--reorder" in command_of(first, "gpt2.json")


def test_where_no_op_moves_no_order_is_proposed() -> None:
    assert not any("reorder" in each.kinds for each in advise(layers(3)).suggestions)
    graph = load(EXAMPLES / "teaching_order.json")
    assert any("reorder" in each.kinds for each in advise(graph).suggestions)
    for how in (Preparation(reorder=True), Preparation(streams=2)):
        advice = advise(graph, how)
        assert not any("reorder" in each.kinds for each in advice.suggestions)
        assert not any("reorder" in each.kinds for each in advice.rejected)
