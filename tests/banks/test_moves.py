"""Plans with moves against all plans of small graphs, by hand, and their graphs run on values."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.banked.bank_moves import BankCopy, copies_of
from memplan_engine.banked.banked_plan import BankBound, BankBoundKind, BankedPlan, accessed_bytes, with_banks
from memplan_engine.banks.bank_text import parse_bank
from memplan_engine.banks.bank_values import Bank
from memplan_engine.errors import InputError, PlanError
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.formats.memplan_json.json_file import dumps, read_banked
from memplan_engine.formats.memplan_json.schema import schemas
from memplan_engine.graph import Graph, Op, check_graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.op_kinds.copies import MOVE
from memplan_engine.problem import Origin, Problem, make_problem
from memplan_engine.schedule import check_schedule
from memplan_engine.spilling.moves import move_sweep
from memplan_engine.spilling.moves.move_planner import decide_moves, plan_moves
from memplan_engine.spilling.moves.move_task import make_move_task
from memplan_engine.spilling.moves.moved_graph import moved_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.bank_checks import validate_banked
from memplan_engine.verify.move_bounds import moves_bound_fault
from memplan_engine.verify.move_checks import check_moves
from memplan_engine.verify.validate import Rule
from tests.support.graphs import graphs, make_graph
from tests.support.moves import best_with_moves, drawn_moves

SECONDS = 60.0
"""Of searches that are through long before, also where the machine is busy."""
DRAWN = int(os.environ.get("MEMPLAN_DRAWN_MOVES", "80"))


def gpt() -> Graph:
    """`a`, 4 bytes, is read twice, then once more at the end; between, `c` and `d` take 10 bytes."""
    ops = [
        Op("make", "op", ("x",), ("a",)),
        Op("one", "op", ("a",), ("b",)),
        Op("two", "op", ("a", "b"), ("c",)),
        Op("three", "op", ("c",), ("d",)),
        Op("last", "op", ("a", "d"), ("e",)),
    ]
    sizes = {"x": 1, "a": 4, "b": 1, "c": 5, "d": 5, "e": 1}
    return make_graph(ops, sizes, inputs=("x",), outputs=("e",))


def banked(graph: Graph, *texts: str, **more: Any) -> Problem:
    return with_banks(to_problem(graph, alignment=1), [parse_bank(text) for text in texts], **more)


def evicted() -> BankedPlan:
    """Ten bytes of SRAM: `a` is copied to DRAM before "three", whose two buffers need all of them."""
    return plan_moves(banked(gpt(), "sram=10", "dram"), limits=SolveLimits(SECONDS))


def test_by_hand() -> None:
    """Without moves one of `c` and `d` is in DRAM for its two accesses of 5 bytes. If `a` is copied there
    behind "two" instead, the copy writes 4 bytes and "last" reads 4."""
    plan = evicted()
    decision = decide_moves(banked(gpt(), "sram=10", "dram"), limits=SolveLimits(SECONDS))
    assert decision.still.plan is not None
    assert (decision.still.plan.traffic, plan.traffic) == (10, 8)
    assert plan.bound == BankBound(8, BankBoundKind.SWEEP)
    assert plan.optimal
    problem = plan.problem
    assert problem.origin is not None
    assert [op.name for op in problem.origin.graph.ops] == [
        "make",
        "one",
        "two",
        "a to dram",
        "three",
        "last",
    ]
    copy = problem.origin.graph.ops[3]
    assert (copy.kind, copy.inputs, copy.outputs) == (MOVE, ("a",), ("a@1",))
    assert problem.origin.graph.ops[5].inputs == ("a@1", "d")
    lives = dict(
        zip(problem.names, zip(problem.start.tolist(), problem.end.tolist(), strict=True), strict=True)
    )
    assert lives == {"a": (0, 4), "a@1": (3, 6), "b": (1, 3), "c": (2, 5), "d": (4, 6), "e": (5, 6)}
    rows = {name: row for row, name in enumerate(problem.names)}
    assert copies_of(problem) == (BankCopy(3, rows["a"], rows["a@1"], 4),)
    assert plan.bank_of[rows["a@1"]] == 1
    assert plan.banks.accessed[rows["a"]] == 4 * 4
    assert accessed_bytes(problem.origin.graph)["a@1"] == 2 * 4


@pytest.mark.parametrize("batch", range(0, DRAWN, 20))
def test_small_graphs_as_by_hand(batch: int) -> None:
    """No bound is above the least of all plans, no plan below it, each is valid, and most meet."""
    moved = met = 0
    for seed in range(batch, min(batch + 20, DRAWN)):
        problem = drawn_moves(seed)
        least = best_with_moves(problem)
        plan = decide_moves(problem, limits=SolveLimits(SECONDS)).plan
        assert (plan is None) == (least is None), seed
        if plan is None or least is None:
            continue
        assert plan.bound.value <= least <= plan.traffic, seed
        report = validate_banked(plan)
        assert (report.violations, report.unchecked) == ((), ())
        assert check_moves(problem, plan) == []
        moved += bool(copies_of(plan.problem))
        met += plan.traffic == least
    assert moved > 0
    assert met >= 19


def test_prices_and_the_search_hold_where_there_is_no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_sweep, "MOST_STATES", 0)
    met = 0
    for seed in range(12):
        problem = drawn_moves(seed)
        least = best_with_moves(problem)
        assert least is not None
        plan = plan_moves(problem, limits=SolveLimits(SECONDS))
        assert plan.bound.kind is BankBoundKind.MOVES
        assert plan.bound.value <= least <= plan.traffic
        assert validate_banked(plan).valid
        assert check_moves(problem, plan) == []
        met += plan.traffic == least
    assert met >= 11


def values_of(graph: Graph) -> list[object]:
    """What the graph returns, each op run on what lies in the storages that it reads: a stand-in for its
    arithmetic. A copy hands on what it finds."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    held: dict[str, object] = {home[name]: name for name in (*graph.inputs, *graph.constants)}
    for op in graph.ops:
        read = tuple(held[home[name]] for name in op.inputs)
        if op.kind == MOVE:
            (target,) = {home[name] for name in op.outputs}
            (held[target],) = set(read)
            continue
        sources = {home[name] for name in op.inputs}
        for place, name in enumerate((*op.outputs, *op.mutates)):
            if name in op.mutates or home[name] not in sources:
                held[home[name]] = hash((op.name, read, place))
    return [held[home[name]] for name in graph.outputs]


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_any_ways_leave_the_values_as_they_are(graph: Graph, seed: int) -> None:
    """Views, writes in place, graph inputs in the arena: whatever moves when, what is returned is the same,
    and the lives are those that the graph with the copies has by itself."""
    problem = to_problem(graph, alignment=1, plan_inputs=True)
    if not len(problem):
        return
    own = with_banks(problem, [Bank("sram"), Bank("dram"), Bank("far")])
    task = make_move_task(own)
    moved = moved_problem(task, np.random.default_rng(seed).integers(0, 3, len(task.access)))
    origin = moved.problem.origin
    assert origin is not None
    check_graph(origin.graph)
    check_schedule(origin.graph, origin.schedule)
    assert values_of(origin.graph) == values_of(graph)
    again = to_problem(origin.graph, origin.schedule, alignment=1, plan_inputs=True)
    for one in (again, moved.problem):
        assert sorted(zip(one.names, one.start, one.end, one.size, strict=True)) == sorted(
            zip(moved.problem.names, moved.problem.start, moved.problem.end, moved.problem.size, strict=True)
        )


def broken_rules(plan: BankedPlan) -> set[Rule]:
    return set(validate_banked(plan).counts)


def with_graph(plan: BankedPlan, **changes: Any) -> BankedPlan:
    origin = plan.problem.origin
    assert origin is not None
    graph = replace(origin.graph, **changes)
    return replace(plan, problem=replace(plan.problem, origin=Origin(graph, origin.schedule)))


def test_the_checker_finds_what_is_wrong() -> None:
    plan = evicted()
    assert plan.problem.origin is not None
    ops = plan.problem.origin.graph.ops
    assert broken_rules(plan) == set()
    stale = with_graph(plan, ops=(*ops[:5], replace(ops[5], inputs=("a", "d"))))
    assert Rule.MOVES in broken_rules(stale)
    silent = with_graph(plan, ops=(*ops[:3], replace(ops[3], kind="op"), *ops[4:]))
    before = banked(gpt(), "sram=10", "dram")
    assert check_moves(before, silent) != []
    other = with_graph(plan, ops=(replace(ops[0], kind="other"), *ops[1:]))
    assert len(check_moves(before, plan)) < len(check_moves(before, other))
    banks = plan.banks
    free = replace(banks, accessed=np.where(np.arange(len(plan.problem)) == 0, 12, banks.accessed))
    assert Rule.MOVES in broken_rules(replace(plan, problem=replace(plan.problem, banks=free)))
    assert broken_rules(replace(plan, bound=BankBound(9, BankBoundKind.SWEEP))) == {Rule.BOUND}
    assert broken_rules(replace(plan, bound=BankBound(8, BankBoundKind.MOVES))) == {Rule.BOUND}
    assert broken_rules(replace(plan, bound=BankBound(8, BankBoundKind.SEARCH))) == {Rule.BOUND}


def test_nothing_is_proved_of_accesses_outside_a_life() -> None:
    plan = evicted()
    assert moves_bound_fault(plan, True) == ("", ())
    problem, origin = plan.problem, plan.problem.origin
    assert origin is not None
    ends = np.where(np.array(problem.names) == "a@1", 5, problem.end)
    told, _ = moves_bound_fault(replace(plan, problem=replace(problem, end=ends)), True)
    assert told == "nothing is proved: last accesses a@1 at step 5, outside the life of a@1"
    swapped = Origin(origin.graph, replace(origin.schedule, step_of_op=(0, 1, 2, 4, 3, 5)))
    told, _ = moves_bound_fault(replace(plan, problem=replace(problem, origin=swapped)), True)
    assert told.startswith("nothing is proved: ")


def test_prices_are_worked_out_by_hand() -> None:
    """A byte of SRAM costs 1 at "three" and 2 at "last": of `a` 8 instead of 12 there, of `d` 5 + 5 either
    way; `c` 5; `e` 1; 30 for all ten bytes come back."""
    plan = evicted()
    for price, proves in (((0, 4, 1),), 4), (((0, 3, 1),), -1), (((1, 4, 1),), -1), (((0, 4, -1),), -1):
        bound = BankBound(max(proves, 0), BankBoundKind.MOVES, price, 1)
        assert (broken_rules(replace(plan, bound=bound)) == set()) == (proves >= 0)
        above = replace(bound, value=proves + 1) if proves >= 0 else bound
        assert broken_rules(replace(plan, bound=above)) == {Rule.BOUND}


def test_what_cannot_move_is_refused() -> None:
    listed = with_banks(make_problem([0], [2], [4]), [Bank("sram", 8), Bank("dram")])
    with pytest.raises(InputError, match="buffers without a graph"):
        decide_moves(listed)
    with pytest.raises(InputError, match="move already"):
        decide_moves(evicted().problem)
    problem = banked(gpt(), "sram=10", "dram", accessed=np.array([1, 2, 3, 4, 5]))
    with pytest.raises(InputError, match="1 accessed bytes of buffer 'a', expected 16"):
        decide_moves(problem)


def test_a_plan_with_moves_is_not_planned_again(memplan: Any, tmp_path: Path) -> None:
    (tmp_path / "moved.json").write_bytes(dumps(evicted()))
    for line in (
        ("plan",),
        ("plan", "--bank", "sram=16", "--bank", "dram"),
        ("what-if", "--bank", "sram=16"),
    ):
        code, _, err = memplan(line[0], tmp_path / "moved.json", *line[1:])
        assert code == 2, line
        assert "buffers move between banks already, expected the graph that the plan was made from" in err


def test_no_room_is_proved_where_live_bytes_show_it() -> None:
    decision = decide_moves(banked(gpt(), "sram=5", "dram=5"), limits=SolveLimits(SECONDS))
    assert decision.verdict is Verdict.DOES_NOT_FIT
    with pytest.raises(PlanError, match="hold"):
        plan_moves(banked(gpt(), "sram=5", "dram=5"), limits=SolveLimits(SECONDS))


def test_moves_make_room_where_there_is_none_without() -> None:
    """Two banks of four bytes: at "mix" `a` and `b` of two bytes have to leave one of them for the four
    bytes of `c`, and at first `big` keeps both from lying in the one."""
    ops = [
        Op("a", "op", ("x",), ("a",)),
        Op("big", "op", ("a",), ("big",)),
        Op("b", "op", ("a", "big"), ("b",)),
        Op("c", "op", ("a", "b"), ("c",)),
        Op("end", "op", ("c",), ("y",)),
    ]
    sizes = {"x": 1, "a": 2, "big": 4, "b": 2, "c": 4, "y": 1}
    problem = banked(make_graph(ops, sizes, inputs=("x",), outputs=("y",)), "sram=6", "dram=4")
    plan = plan_moves(problem, limits=SolveLimits(SECONDS))
    assert plan.traffic == best_with_moves(problem)
    assert validate_banked(plan).valid


def test_constants_stay_where_they_are() -> None:
    ops = [Op(f"op{i}", "op", ("w", f"t{i}") if i else ("w",), (f"t{i + 1}",)) for i in range(3)]
    graph = make_graph(ops, {"w": 4, "t1": 4, "t2": 4, "t3": 1}, constants=("w",), outputs=("t3",))
    plan = plan_moves(banked(graph, "sram=8", "dram", "flash,read-only"), limits=SolveLimits(SECONDS))
    moved = {plan.problem.names[copy.source] for copy in copies_of(plan.problem)}
    assert "w" not in moved
    assert validate_banked(plan).valid


def test_a_plan_is_read_back_byte_equal() -> None:
    text = dumps(evicted())
    back = read_banked(text.decode(), "plan.json")
    assert dumps(back) == text
    assert validate_banked(back).valid
    jsonschema.validate(json.loads(text), json.loads(schemas()["plan.v2.json"]))


def test_the_command_line(memplan: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "net.json", tmp_path / "moved.json"
    file.write_bytes(dumps(gpt()))
    asked = ("plan", file, "--bank", "sram=10", "--bank", "dram", "--moves", "--alignment", "1")
    code, text, err = memplan(*asked, "-o", out)
    assert (code, err) == (0, "")
    assert "without moves  10 B: moves save 20.0 %" in text
    assert "1 from sram to dram (4 B)" in text
    assert "optimal: no plan with moves between these banks has less traffic than 8 B" in text
    assert memplan("validate", out)[0] == 0
    assert memplan("peak", out, "--in-bank", "sram")[0] == 0
    assert memplan("replay", out, "--in-bank", "sram", "--strategy", "greedy_by_size")[0] == 0
    assert memplan("report", out, "--svg", tmp_path / "lanes.svg")[0] == 0
    told = json.loads(memplan(*asked, "--json")[1])
    assert told["without_moves"]["traffic"] == 10
    assert told["plan"]["copies"] == [
        {"step": 3, "source": "a", "target": "a@1", "from": "sram", "to": "dram", "bytes": 4}
    ]
    for more in (("--objective", "peak"), ("--capacity", "5")):
        code, _, err = memplan(*asked, *more)
        assert (code, err.count("\n")) == (2, 1)
    code, _, err = memplan("plan", file, "--moves")
    assert (code, err.count("\n")) == (2, 1)
    assert "--bank NAME=CAPACITY" in err


def test_one_seed_gives_one_plan() -> None:
    one, other = evicted(), evicted()
    assert one.problem == other.problem
    assert one.offsets.tolist() == other.offsets.tolist()
