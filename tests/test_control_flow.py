"""Ops inside other ops: who lives when, what stays together, and one op in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.control_flow import branch_graph, contract, regions
from memplan_engine.errors import InputError
from memplan_engine.graph import MOST_NESTED, Graph, Op, Role, Storage, Tensor, check_graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.planner import make_plan
from memplan_engine.problem import Gap
from memplan_engine.profile import load_of
from memplan_engine.rewrites.order.check_reorder import OrderRule, check_reorder
from memplan_engine.rewrites.order.order_problem import peak_in_order, whole_ops
from memplan_engine.rewrites.order.reorder import reorder
from memplan_engine.rewrites.reuse import check_reuse, reuse, reused_problem
from memplan_engine.schedule import check_schedule, multi_stream, sequential
from memplan_engine.verify.validate import validate_plan
from tests.support.nested_graphs import Nested, least_needed, needed

TRUE, FALSE = (("if", "true"),), (("if", "false"),)
SIZES = {"a": 10, "wide": 100, "narrow": 60, "r": 20, "z": 5}
# step     0     1       2       3        4        5    6
# a       made                                    read
# wide          made    read
# r                     made  –  not there –  made      read
# narrow                        made     read
OPS = (
    Op("first", "f", ("x",), ("a",)),
    Op("up", "f", ("a",), ("wide",), within=TRUE),
    Op("down", "f", ("wide",), ("r_true",), within=TRUE),
    Op("cut", "f", ("a",), ("narrow",), within=FALSE),
    Op("copy", "f", ("narrow",), ("r_false",), within=FALSE),
    Op("if", "cond", ("a", "r_false"), ("r",)),
    Op("last", "f", ("r",), ("z",)),
)


def branching(ops=OPS):
    homes = {name: name for name in ("x", *SIZES)} | {"r_true": "r", "r_false": "r"}
    sizes = SIZES | {"x": 8}
    roles = {"x": Role.INPUT, "z": Role.OUTPUT}
    storages = tuple(Storage(name, size, roles.get(name, Role.ACTIVATION)) for name, size in sizes.items())
    tensors = tuple(Tensor(name, (), "int8", sizes[home], home) for name, home in homes.items())
    return check_graph(Graph("branching", storages, tensors, tuple(ops), ("x",), ("z",)))


def in_one_another(depth):
    """One op inside `depth` others, each of which gives what is inside it as its result."""
    calls = [(f"call{level}", "body") for level in range(depth)]
    ops = [Op("leaf", "f", ("x",), ("t",), within=tuple(calls))]
    for level in reversed(range(depth)):
        ops.append(Op(f"call{level}", "loop", ops[-1].outputs, (f"r{level}",), within=tuple(calls[:level])))
    roles = {"x": Role.INPUT, "r0": Role.OUTPUT}
    names = ["x", *(op.outputs[0] for op in ops)]
    storages = tuple(Storage(name, 4, roles.get(name, Role.ACTIVATION)) for name in names)
    tensors = tuple(Tensor(name, (4,), "int8", 4, name) for name in names)
    return check_graph(Graph("deep", storages, tensors, tuple(ops), ("x",), ("r0",)))


def test_ops_inside_very_many_others_are_refused():
    with pytest.raises(InputError, match="op 'leaf': found inside 1,200 ops, one in another, expected at mo"):
        in_one_another(1200)
    deep = in_one_another(MOST_NESTED)
    # By hand: what an op reads and what it makes.
    assert (peak_in_order(deep), reorder(deep, brief=True).live_after) == (8, 8)


def nested(seed, ops=4, depth=2):
    return Nested(seed, ops, depth).graph()


def test_the_result_of_a_branch_is_not_there_in_the_next_one_before_it_is_made():
    problem = to_problem(branching(), alignment=1)
    rows = {
        problem.names[row]: (int(problem.start[row]), int(problem.end[row])) for row in range(len(problem))
    }
    assert rows == {"a": (0, 6), "wide": (1, 3), "r": (2, 7), "narrow": (3, 5), "z": (6, 7)}
    assert problem.gaps == {problem.names.index("r"): (Gap(3, 4),)}
    assert load_of(problem).peak == 130
    plan = make_plan(problem, "auto")
    assert (plan.arena_bytes, validate_plan(plan).violations) == (130, ())


@given(st.integers(0, 10**6))
def test_what_is_live_is_what_the_fullest_run_needs(seed):
    graph = nested(seed)
    assert load_of(to_problem(graph, alignment=1)).peak == needed(graph) == peak_in_order(graph)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("first up cut down copy if last", "behind what is inside 'if'|branch 'true' of 'if' again"),
        ("first up down cut copy last if", "'last'|before"),
        ("up down first cut copy if last", "'first'|before"),
    ],
)
def test_branches_that_are_torn_are_refused(order, words):
    by_name = {op.name: op for op in OPS}
    with pytest.raises(InputError, match=words):
        branching([by_name[name] for name in order.split()])


def test_an_op_inside_one_that_is_not_there_is_refused():
    ops = [replace(op, within=(("no", "true"),)) if op.name == "last" else op for op in OPS]
    with pytest.raises(InputError, match="expected 'no'"):
        branching(ops)


def test_what_is_made_inside_is_read_by_its_op_alone():
    leak = [replace(op, inputs=("narrow",)) if op.name == "last" else op for op in OPS]
    with pytest.raises(InputError, match="op 'last': found 'narrow', made inside 'if', expected its result"):
        branching(leak)
    with pytest.raises(InputError, match="outputs: found 'r_false', made inside 'if'"):
        check_graph(replace(branching(), outputs=("z", "r_false")))


def test_branches_stay_together_on_several_streams():
    graph = branching()
    schedule = multi_stream(graph, 4)
    assert check_schedule(graph, schedule) == schedule == sequential(graph)


@given(st.integers(0, 10**6))
def test_no_stream_runs_a_branch_beside_another(seed):
    graph = nested(seed)
    schedule = multi_stream(graph, 3)
    ranges: dict[tuple, list[int]] = {}
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        ranges.setdefault(op.within, []).append(step)
    for path, steps in ranges.items():
        for other, others in ranges.items():
            if path and other and path[: len(other)] != other and other[: len(path)] != path:
                assert max(steps) < min(others) or max(others) < min(steps)


def test_a_region_in_one_op():
    graph = branching()
    (region,) = regions(graph)
    assert (region.first, region.call, dict(region.branches)) == (1, 5, {"true": (1, 3), "false": (3, 5)})
    whole = check_graph(contract(graph, {"if": 110}))
    assert [op.name for op in whole.ops] == ["first", "if", "last"]
    assert (whole.ops[1].inputs, whole.ops[1].outputs) == (("a",), ("r", "if.inside"))
    assert load_of(to_problem(whole, alignment=1)).peak == 10 + 20 + 110


def test_a_branch_as_a_graph():
    graph = branching()
    branch = check_graph(branch_graph(graph, regions(graph)[0], "true"))
    assert (branch.inputs, branch.outputs) == (("a",), ("r_true",))
    assert [op.within for op in branch.ops] == [(), ()]


@given(st.integers(0, 10**6))
def test_one_op_holds_what_was_inside(seed):
    graph = nested(seed)
    whole = whole_ops(graph)
    assert not any(op.within for op in whole.ops)
    assert load_of(to_problem(whole, alignment=1)).peak == needed(graph)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_order_is_the_best_of_all_that_keep_branches_together(seed):
    graph = next(each for each in (nested(seed + 100 * n, 3, 1) for n in range(100)) if 4 < len(each.ops) < 8)
    found = reorder(graph, brief=True)
    assert check_reorder(graph, found.graph) == ()
    assert needed(graph) == found.live_before
    assert needed(found.graph) == found.live_after
    least = least_needed(graph)
    assert found.bound_bytes <= least <= found.live_after
    assert not found.proved or found.live_after == least


@given(st.integers(0, 10**6), st.booleans())
def test_orders_and_reuse_of_nested_graphs(seed, in_place):
    graph = nested(seed, 5)
    found = reorder(graph, brief=True, in_place=in_place)
    assert check_reorder(graph, found.graph) == ()
    assert found.bound_bytes <= found.live_after <= found.live_before
    reused = reuse(found.graph, concat=False) if in_place else None
    if reused is not None:
        assert check_reuse(found.graph, reused.graph) == ()
    problem = reused_problem(reused, alignment=1) if reused else to_problem(found.graph, alignment=1)
    assert load_of(problem).peak == found.live_after


def test_the_checker_refuses_an_op_that_left_its_branch():
    graph = branching()
    by_name = {op.name: op for op in OPS}
    order = "first cut copy up down if last"
    moved = replace(graph, ops=tuple(by_name[name] for name in order.split()))
    assert OrderRule.TOGETHER in {breach.rule for breach in check_reorder(graph, moved)}
