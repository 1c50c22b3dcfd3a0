"""The checker of reuse, rule by rule: what is wrong with a graph, or a plan, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memplan_engine import adopt, make_plan, make_problem
from memplan_engine.errors import InputError
from memplan_engine.problem import Gap, Origin
from memplan_engine.rewrites.reuse import Rule, check_plan_execution, check_reuse
from memplan_engine.schedule import Schedule, sequential
from tests.rewrites.reuse_graphs import Builder, found, moved, net_of_four


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


def test_bytes_that_the_original_graph_overwrites_too_are_no_breach() -> None:
    """The op reads `v`, whose bytes are those of `a`, and writes `a` in place."""
    net = Builder()
    net.input("x", 4)
    net.op("conv", "x", "a", 4)
    net.view("a", "v", 2, at=1)
    net.op("conv", "v", "y", 4, mutates=("a",))
    graph = net.graph("y")
    assert found(graph, graph) == []
    assert found(graph, moved(graph, v=("a", 0)))[0] == (Rule.OVERWRITES, "y!", "v", "y!")


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


def test_a_plan_without_an_offset_for_each_buffer_cannot_be_run() -> None:
    plan = make_plan(net_of_four().graph("b"))
    assert len(plan.offsets) == 2
    with pytest.raises(InputError, match="offsets: found 1 offsets, expected 2"):
        check_plan_execution(replace(plan, offsets=plan.offsets[:1]))


def test_a_plan_of_no_graph_cannot_be_run() -> None:
    with pytest.raises(
        InputError, match="found a problem that comes from no graph, expected a plan of a graph"
    ):
        check_plan_execution(make_plan(make_problem([0], [1], [4])))
