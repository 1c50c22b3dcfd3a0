"""The checker of reuse: finds what is wrong, by hand and against real execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import adopt, load, make_plan, make_problem
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import InputError, PlanError
from memplan_engine.graph import Graph, Op
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
from memplan_engine.rewrites.reuse.check_reuse import Contents, Piece
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
