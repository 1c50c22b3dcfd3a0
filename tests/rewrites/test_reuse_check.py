"""The checker of reuse: finds what is wrong, by hand and against real execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import adopt, load, make_plan, make_problem
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError, PlanError
from memplan_engine.graph import Graph, Op, Tensor
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import Gap, Origin
from memplan_engine.rewrites.reuse import (
    Reason,
    Rule,
    check_plan_execution,
    check_reuse,
    place_concats,
    reuse,
    reused_problem,
    write_in_place,
)
from memplan_engine.rewrites.reuse.breaches import (
    Breach,
    Place,
    block_offsets,
    misplaced,
    not_the_same,
    places_in,
)
from memplan_engine.rewrites.reuse.check_reuse import Contents, Piece, first_difference
from memplan_engine.rewrites.reuse.concat import _Draft as ConcatDraft
from memplan_engine.rewrites.reuse.in_place import _Draft as InPlaceDraft
from memplan_engine.schedule import Schedule, multi_stream, sequential
from tests.rewrites.reuse_graphs import Builder, execute, execute_as_it_is, execute_plan, random_graph

GRAPHS = settings(max_examples=300, deadline=None, derandomize=True)


def moved(graph: Graph, **homes: tuple[str, int]) -> Graph:
    """`graph` with some tensors at another storage and byte, and `mutates` to suit."""
    tensors = tuple(
        replace(t, storage=homes[t.name][0], offset=homes[t.name][1]) if t.name in homes else t
        for t in graph.tensors
    )
    place = {t.name: (t.storage, t.offset) for t in tensors}

    def said(op: Op) -> tuple[str, ...]:
        return tuple(n for n in op.inputs if any(o in homes and place[n] == place[o] for o in op.outputs))

    ops = tuple(replace(op, mutates=tuple(dict.fromkeys((*op.mutates, *said(op))))) for op in graph.ops)
    return replace(graph, tensors=tensors, ops=ops)


def found(
    original: Graph, reused: Graph, schedule: Schedule | None = None
) -> list[tuple[Rule, str, str, str]]:
    return [(b.rule, b.op, b.tensor, b.overwritten_by) for b in check_reuse(original, reused, schedule)]


def net_of_four() -> Builder:
    net = Builder()
    net.input("x", 4)
    net.op("aten.conv2d", "x", "a", 4)
    net.op("aten.relu", "a", "b", 4)
    return net


def test_a_sound_reuse_passes() -> None:
    net = net_of_four()
    net.op("aten.linear", "b", "y", 4)
    graph = net.graph("y")
    assert check_reuse(graph, moved(graph, b=("a", 0))) == ()


def test_a_reader_after_the_overwrite() -> None:
    net = net_of_four()
    net.op("aten.linear", "b a", "y", 4)
    graph = net.graph("y")
    (breach,) = check_reuse(graph, moved(graph, b=("a", 0)))
    assert (breach.rule, breach.op, breach.tensor, breach.overwritten_by) == (Rule.READ, "y!", "a", "b!")
    assert breach.step == 2
    assert str(breach) == (
        "step 2: op 'y!', tensor 'a': broken: a read finds the value that the graph means; "
        "byte 0 was written by b!"
    )


def test_a_view_still_read() -> None:
    net = net_of_four()
    net.view("a", "v", 2, at=2)
    net.op("aten.linear", "v b", "y", 4)
    graph = net.graph("y")
    ops = (graph.ops[0], graph.ops[2], graph.ops[1], graph.ops[3])
    graph = replace(graph, ops=ops)
    assert found(graph, moved(graph, b=("a", 0))) == [(Rule.READ, "y!", "v", "b!")]


def test_two_ops_of_one_step() -> None:
    net = net_of_four()
    net.op("aten.linear", "a", "c", 4)
    graph = net.graph("b", "c")
    together = Schedule((0, 1, 1), 2)
    wrong = moved(graph, b=("a", 0))
    assert (Rule.RACE, "c!", "a", "b!") in found(graph, wrong, together)
    reader_first = Schedule((0, 2, 1), 3)
    assert found(graph, wrong, reader_first) == []


@pytest.mark.parametrize(("home", "at"), [("m", 0), ("m", 24), ("out", 0), ("out", 12)])
def test_a_concatenation_beside_another_op_of_its_step(home: str, at: int) -> None:
    """It writes all of what it mutates, which may be more than its inputs take, and every block."""
    net = Builder()
    net.input("x", 4)
    for name, size in (("a", 2), ("b", 2), ("m", 8), ("t", 1)):
        net.op("conv", "x", name, size)
    net.op("cat", "a b", "out", 4, mutates=("m",))
    net.op("conv", "t", "u", 1)
    graph = net.graph("out", "u")
    together = Schedule((0, 1, 2, 3, 4, 4), 5)
    assert found(graph, graph, together) == []
    # t is made before, is read in the step of the concatenation, and lies in what that writes.
    assert (Rule.RACE, "u!", "t", "out!") in found(graph, moved(graph, t=(home, at)), together)


def test_what_an_op_mutates_is_read_and_wholly_written() -> None:
    net = Builder()
    net.input("x", 4)
    for name, size in (("a", 2), ("b", 2), ("m", 8), ("t", 1)):
        net.op("conv", "x", name, size)
    net.op("cat", "a b", "out", 4, mutates=("m",))
    net.op("conv", "t", "u", 1)
    graph = net.graph("out", "u", "m")
    assert found(graph, graph) == []
    # t lies in m behind what the inputs of the concatenation would take: byte 24 of 32.
    breaches = found(graph, moved(graph, t=("m", 24)))
    assert (Rule.READ, "out!", "m", "t!") in breaches
    assert (Rule.READ, "u!", "t", "out!") in breaches


def test_every_output_is_held_against_what_is_read() -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.op("conv", "a", "p", 4)
    net.tensor("q", 4)
    net.ops[-1] = replace(net.ops[-1], outputs=("p", "q"))
    graph = net.graph("p", "q")
    for name in "pq":
        assert found(graph, moved(graph, **{name: ("a", 0)})) == [(Rule.OVERWRITES, "p!", "a", "p!")]


def test_two_ops_of_one_step_that_write_the_same_bytes() -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.op("conv", "x", "b", 4)
    net.op("conv", "x", "y", 4)
    graph = net.graph("y")
    wrong = moved(graph, b=("a", 0))
    assert found(graph, wrong) == []
    assert (Rule.RACE, "b!", "b", "a!") in found(graph, wrong, Schedule((0, 0, 1), 2))


def test_an_op_that_is_not_elementwise_may_not_write_over_its_input() -> None:
    net = net_of_four()
    net.op("aten.softmax", "b", "y", 4)
    graph = net.graph("y")
    assert found(graph, moved(graph, y=("b", 0))) == [(Rule.OVERWRITES, "y!", "b", "y!")]


def test_nor_an_elementwise_op_over_another_element() -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 6)
    net.view("a", "v", 4)
    net.op("aten.relu", "v", "y", 4)
    graph = net.graph("y")
    assert found(graph, moved(graph, y=("a", 8))) == [(Rule.OVERWRITES, "y!", "v", "y!")]


def test_an_overwritten_input_that_is_not_said() -> None:
    net = net_of_four()
    graph = net.graph("b")
    wrong = moved(graph, b=("a", 0))
    wrong = replace(wrong, ops=tuple(replace(op, mutates=()) for op in wrong.ops))
    assert found(graph, wrong) == [(Rule.UNSAID, "b!", "a", "")]


def test_outputs_and_the_callers_own_are_looked_at_last() -> None:
    net = net_of_four()
    net.op("aten.relu", "x", "c", 4)
    graph = net.graph("a", "b", "c")
    assert found(graph, moved(graph, b=("a", 0))) == [(Rule.RETURNED, "", "a", "b!")]
    assert found(graph, moved(graph, c=("x", 0))) == [(Rule.CALLERS, "", "x", "c!")]


def test_tensors_stay_in_their_storage_and_at_their_alignment() -> None:
    net = net_of_four()
    net.op("conv", "b", "wide", 8)
    graph = net.graph("wide")
    assert (Rule.RANGE, "", "b", "wide") in found(graph, moved(graph, b=("wide", 20)))
    near = check_reuse(graph, moved(graph, a=("wide", 16)), alignment=64)
    assert Rule.ALIGNMENT in {breach.rule for breach in near}
    assert Rule.ALIGNMENT not in {
        b.rule for b in check_reuse(graph, moved(graph, a=("wide", 16)), alignment=16)
    }


def test_another_graph_is_no_reuse() -> None:
    graph = net_of_four().graph("b")
    other = replace(graph, ops=graph.ops[:1], tensors=graph.tensors[:2], outputs=("a",))
    assert {rule for rule, *_ in found(graph, other)} == {Rule.SAME_GRAPH}


def joined() -> Graph:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 2)
    net.op("conv", "x", "b", 2)
    net.op("cat", "a b", "y", 4)
    return net.graph("y")


def with_op(graph: Graph, **changes: Any) -> Graph:
    """`graph` with another last op."""
    return replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], **changes)))


@pytest.mark.parametrize(
    ("change", "op", "tensor"),
    [
        (lambda graph: replace(graph, tensors=graph.tensors[:-1]), "", "y"),
        (lambda graph: replace(graph, tensors=(*graph.tensors, Tensor("t", (), "f", 4, "x"))), "", "t"),
        (
            lambda graph: replace(
                graph, tensors=(*graph.tensors[:-1], replace(graph.tensors[-1], shape=(2, 2)))
            ),
            "",
            "y",
        ),
        (lambda graph: replace(graph, ops=graph.ops[:-1]), "", ""),
        (lambda graph: with_op(graph, kind="aten.sum"), "y!", ""),
        (lambda graph: with_op(graph, name="z!"), "z!", ""),
        (lambda graph: with_op(graph, mutates=()), "y!", ""),
        (lambda graph: with_op(graph, mutates=("x", "a")), "y!", ""),
        (lambda graph: with_op(graph, mutates=("x", "y")), "y!", ""),
        (lambda graph: replace(graph, outputs=("y", "a")), "", ""),
        (lambda graph: replace(graph, constants=("a",)), "", ""),
    ],
)
def test_another_graph_is_named_by_what_is_different(
    change: Callable[[Graph], Graph], op: str, tensor: str
) -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.op("conv", "x", "b", 4)
    net.op("conv", "b", "y", 4, mutates=("x",))
    graph = net.graph("y")
    assert not_the_same(graph, graph) == []
    assert not_the_same(graph, with_op(graph, mutates=("b", "x"))) == []
    assert not_the_same(graph, change(graph)) == [Breach(Rule.SAME_GRAPH, 0, op, tensor)]


def test_tensors_outside_of_their_storage_or_of_their_alignment_are_named_exactly() -> None:
    net = net_of_four()
    net.op("conv", "b", "wide", 8, alignment=16)
    graph = net.graph("wide")
    assert not_the_same(graph, moved(graph, b=("gone", 0))) == [Breach(Rule.RANGE, 0, "", "b")]

    def wrong(at: int, alignment: int) -> list[Breach]:
        reused = moved(graph, b=("wide", at))
        places = places_in(graph, reused, {s.name: (s.name, 0) for s in reused.storages})
        return misplaced(graph, reused, places, alignment)

    assert wrong(16, 16) == []
    assert wrong(20, 4) == [Breach(Rule.RANGE, 0, "", "b", "wide")]
    assert wrong(8, 16) == [Breach(Rule.ALIGNMENT, 0, "", "b", "wide")]
    # A multiple of 32 in a storage that itself begins at multiples of 16 only.
    assert wrong(0, 32) == [Breach(Rule.ALIGNMENT, 0, "", "b", "wide")]


@pytest.mark.parametrize(
    ("whole", "parts", "offsets"),
    [
        ((4, 2), [((2, 2), {}), ((2, 2), {})], [0, 16]),
        ((1, 3, 2), [((1, 1, 2), {}), ((1, 2, 2), {})], [0, 8]),
        ((1, 3), [((1, 3), {})], [0]),
        # Its strides say row by row, too; the dimension of one element may have any.
        ((4, 2), [((1, 2), {"strides": (9, 1)}), ((3, 2), {"strides": (2, 1)})], [0, 8]),
        # Interleaved; another shape; one dimension less; another type; too many bytes.
        ((2, 2), [((2, 1), {}), ((2, 1), {})], None),
        ((4, 2), [((2, 2), {}), ((4, 1), {})], None),
        ((4, 2), [((2, 2), {}), ((4,), {})], None),
        ((4, 2), [((2, 2), {}), ((2, 2), {"dtype": "int32"})], None),
        ((4, 2), [((2, 2), {}), ((3, 2), {})], None),
    ],
)
def test_where_the_inputs_of_a_concatenation_go(
    whole: tuple[int, ...],
    parts: list[tuple[tuple[int, ...], dict[str, Any]]],
    offsets: list[int] | None,
) -> None:
    net = Builder()
    names = [net.tensor(f"p{place}", *shape, **options) for place, (shape, options) in enumerate(parts)]
    net.op("aten.cat", " ".join(names), "out", *whole)
    assert block_offsets(net.ops[0], net.tensors) == offsets
    net.tensors["out"] = replace(net.tensors["out"], strides=tuple(range(1, len(whole) + 1)))
    assert block_offsets(net.ops[0], net.tensors) is None


def test_places_seen_from_one_another() -> None:
    one, other = Place("a", 4, 6), Place("a", 9, 12)
    assert (other.as_seen_from(one), one.as_seen_from(other)) == ((True, 5), (True, -5))
    assert Place("b", 9, 12).as_seen_from(one) == (False, 0)


def transposed_and_plain() -> Builder:
    """`out` is made of `p`, whose elements do not lie row by row, and of `q`; `r` is before it, `z` after."""
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "r", 2, 2)
    net.op("conv", "x", "p", 2, 2, strides=(1, 2))
    net.op("conv", "x", "q", 2, 2)
    net.op("aten.cat", "p q", "out", 4, 2)
    net.op("conv", "x", "z", 2, 2)
    net.op("aten.linear", "r out z", "y", 4)
    return net


@pytest.mark.parametrize("at", [0, 4, 16, 28])
def test_each_block_of_a_concatenation_is_a_value_that_may_be_overwritten(at: int) -> None:
    graph = transposed_and_plain().graph("y")
    assert check_reuse(graph, graph) == ()
    wider = replace(
        graph, storages=tuple(replace(s, nbytes=64) if s.name == "out" else s for s in graph.storages)
    )
    (breach,) = check_reuse(graph, moved(wider, z=("out", at)))
    assert (breach.rule, breach.op, breach.tensor, breach.overwritten_by) == (Rule.READ, "y!", "out", "z!")
    assert breach.byte == at


def test_a_concatenation_overwrites_what_lay_where_it_puts_elements_in_another_order() -> None:
    graph = transposed_and_plain().graph("y")
    assert found(graph, moved(graph, r=("out", 0))) == [(Rule.READ, "y!", "r", "out!")]


def test_bytes_of_the_caller_at_another_place() -> None:
    net = Builder()
    net.input("x", 4)
    net.view("x", "v", 2, at=2)
    net.op("aten.linear", "v", "y", 4)
    graph = net.graph("y")
    assert found(graph, moved(graph, v=("x", 0))) == [(Rule.READ, "y!", "v", "the caller")]


def test_a_hundred_breaches_are_listed() -> None:
    net = Builder()
    net.input("x", 4)
    names = [net.op("conv", "x", f"t{place}", 4) for place in range(150)]
    graph = net.graph(*names)
    assert len(check_reuse(graph, moved(graph, **dict.fromkeys(names, ("t0", 0))))) == 100


def test_blocks_of_a_concatenation_must_be_the_right_ones() -> None:
    graph = joined()
    assert found(graph, moved(graph, a=("y", 0), b=("y", 8))) == []
    wrong = found(graph, moved(graph, a=("y", 8), b=("y", 0)))
    assert {(rule, op) for rule, op, *_ in wrong} == {(Rule.OVERWRITES, "y!")}


def test_an_interleaved_concatenation_may_not_be_built_in_place() -> None:
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 2, 1)
    net.op("conv", "x", "b", 2, 1)
    net.op("cat", "a b", "y", 2, 2)
    graph = net.graph("y")
    wrong = moved(graph, a=("y", 0), b=("y", 8))
    assert {rule for rule, *_ in found(graph, wrong)} == {Rule.OVERWRITES}


def test_a_plan_with_a_window_too_narrow_is_caught_by_its_addresses() -> None:
    """The validator takes the gaps for granted; run inside the arena, the value is lost."""
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.op("conv", "x", "t", 4)
    net.op("sum", "t a", "y", 4)
    graph = net.graph("y")
    sound = make_plan(graph, alignment=4)
    assert check_plan_execution(sound) == ()
    problem = make_problem(
        [0, 1, 2], [3, 3, 3], [16, 16, 16], names=["a", "t", "y"], gaps={0: (Gap(1, 3, 0, 8),)},
        origin=Origin(graph, sequential(graph)),
    )  # fmt: skip
    wrong = adopt(problem, np.array([0, 8, 24]))
    (breach,) = check_plan_execution(wrong)
    assert (breach.rule, breach.op, breach.tensor, breach.overwritten_by, breach.byte) == (
        Rule.READ, "y!", "a", "t!", 8,
    )  # fmt: skip


def test_a_plan_of_no_graph_cannot_be_run() -> None:
    with pytest.raises(
        InputError, match="found a problem that comes from no graph, expected a plan of a graph"
    ):
        check_plan_execution(make_plan(make_problem([0], [1], [4])))


def test_contents_by_hand() -> None:
    memory = Contents()
    memory.write(0, 8, 1)
    memory.write(4, 6, 2)
    assert memory.read(2, 10) == [Piece(0, 2, 1, 2), Piece(2, 4, 2, 0), Piece(4, 6, 1, 6), Piece(6, 8, -1, 0)]
    memory.write(4, 6, 1, 4)
    assert memory.read(0, 8) == [Piece(0, 8, 1, 0)]
    assert memory.read(2, 7) == [Piece(0, 5, 1, 2)]


def test_the_first_difference_is_looked_for_piece_by_piece() -> None:
    meant = [Piece(at, at + 1, at, 0) for at in range(4)]
    for byte in range(4):
        other = [replace(piece, write=9) if piece.low == byte else piece for piece in meant]
        assert first_difference(meant, other) == (byte, 9)
    assert first_difference(meant, meant) is None


def random_case(seed: int, ops: int, streams: int) -> tuple[Graph, Schedule]:
    graph = random_graph(seed, ops)
    return graph, multi_stream(graph, streams) if streams else sequential(graph)


cases = given(st.integers(0, 10**6), st.integers(3, 18), st.integers(0, 3))


@GRAPHS
@cases
def test_reuse_is_sound_and_computes_the_same_bits(seed: int, ops: int, streams: int) -> None:
    graph, schedule = random_case(seed, ops, streams)
    reused = reuse(graph, schedule, alignment=4)
    assert check_reuse(graph, reused.graph, schedule, alignment=4) == ()
    plan = make_plan(reused_problem(reused, alignment=4), "greedy_by_size")
    assert check_plan_execution(plan, graph, alignment=4) == ()
    assert execute_plan(plan, Random(seed)) == execute_as_it_is(graph, schedule)


@GRAPHS
@cases
def test_the_peak_never_rises(seed: int, ops: int, streams: int) -> None:
    graph, schedule = random_case(seed, ops, streams)
    before = find_peak(to_problem(graph, schedule)).nbytes
    in_place = find_peak(reused_problem(write_in_place(graph, schedule))).nbytes
    both = find_peak(reused_problem(reuse(graph, schedule))).nbytes
    concat = find_peak(reused_problem(place_concats(graph, schedule))).nbytes
    assert in_place <= before
    assert concat <= before
    assert both <= in_place


@GRAPHS
@cases
def test_plans_of_any_graph_run_in_their_arena(seed: int, ops: int, streams: int) -> None:
    graph, schedule = random_case(seed, ops, streams)
    plan = make_plan(to_problem(graph, schedule, alignment=4, plan_inputs=bool(seed % 2)), "linear_scan")
    assert check_plan_execution(plan, alignment=4) == ()


def never(*_: object) -> None:
    """Find no reason against anything."""


SABOTAGE: dict[str, tuple[type, str, Callable[..., object]]] = {
    "whoever still reads it": (InPlaceDraft, "_shared_reason", never),
    "any input at all": (InPlaceDraft, "_input_reason", lambda self, place, name, output: (
        None if self.tensors[name].nbytes == output.nbytes
        and self.home[name] != self.home[output.name] else (Reason.SHAPE, "")
    )),
    "writes after the concatenation": (ConcatDraft, "_written_reason", never),
}  # fmt: skip


def wrong_transform(graph: Graph, schedule: Schedule, owner: type) -> Graph:
    if owner is InPlaceDraft:
        return write_in_place(graph, schedule).graph
    return place_concats(graph, schedule, alignment=4).graph


@pytest.mark.parametrize("name", SABOTAGE)
def test_wrong_transforms_are_caught_wherever_they_change_a_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever an unsound graph gives other bits than the original, the checker has said so before."""
    owner, method, replacement = SABOTAGE[name]
    monkeypatch.setattr(owner, method, replacement)
    differed = caught = 0
    for seed in range(150):
        graph, schedule = random_case(seed, 12, seed % 3)
        wrong = wrong_transform(graph, schedule, owner)
        breaches = check_reuse(graph, wrong, schedule)
        caught += bool(breaches)
        homes = {storage.name: (storage.name, 0) for storage in wrong.storages}
        sizes = {storage.name: storage.nbytes for storage in wrong.storages}
        if execute(wrong, schedule, homes, sizes) != execute_as_it_is(graph, schedule):
            differed += 1
            assert breaches, seed
    assert differed >= 3
    assert caught >= differed


def test_reuse_refuses_to_hand_out_what_its_checker_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InPlaceDraft, "_shared_reason", never)
    net = net_of_four()
    net.op("aten.linear", "b a", "y", 4)
    with pytest.raises(PlanError, match="reuse is not sound: step 2: op 'y!', tensor 'a'"):
        reuse(net.graph("y"))


def test_random_offsets_are_caught_wherever_they_change_a_result() -> None:
    differed = 0
    for seed in range(200):
        graph, schedule = random_case(seed, 8, seed % 3)
        problem = reused_problem(reuse(graph, schedule, alignment=4), alignment=4)
        rng = Random(seed)
        offsets = np.array([4 * rng.randrange(0, 30) for _ in range(len(problem))], dtype=np.int64)
        wrong = adopt(problem, offsets)
        if execute_plan(wrong) != execute_as_it_is(graph, schedule):
            differed += 1
            assert check_plan_execution(wrong, graph), seed
    assert differed > 50


@pytest.mark.parametrize("name", ["bert_base", "gpt2", "mobilenet_v2", "resnet50", "vit_b16"])
@pytest.mark.parametrize("streams", [0, 3])
def test_real_graphs_run_in_their_arena_with_and_without_reuse(name: str, streams: int) -> None:
    graph = load(f"example_graphs/{name}.json")
    assert isinstance(graph, Graph)
    schedule = multi_stream(graph, streams) if streams else sequential(graph)
    assert check_plan_execution(make_plan(to_problem(graph, schedule), "greedy_by_size")) == ()
    reused = reuse(graph, schedule)
    plan = make_plan(reused_problem(reused), "greedy_by_size")
    assert check_plan_execution(plan, graph, alignment=64) == ()
