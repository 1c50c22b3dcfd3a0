"""Schedules: levels as soon as possible, streams, and what people may give and may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import InputError, Op, make_plan
from memplan_engine.formats.order_files import load_schedule
from memplan_engine.lifetimes import lifetimes, to_problem
from memplan_engine.schedule import (
    MOST_STEPS,
    Schedule,
    by_steps,
    by_streams,
    check_schedule,
    dependencies,
    multi_stream,
    sequential,
)
from tests.support.graphs import graphs, make_graph

#  x ── a ── c ─┐        level 0: a b d    level 1: c e    level 2: f
#  x ── b ──────┴─ f
#  x ── d ── e
DIAMOND = make_graph(
    [
        Op("a", "op", ("x",), ("A",)),
        Op("b", "op", ("x",), ("B",)),
        Op("c", "op", ("A",), ("C",)),
        Op("d", "op", ("x",), ("D",)),
        Op("e", "op", ("D",), ("E",)),
        Op("f", "op", ("C", "B"), ("F",)),
    ],
    {"x": 1, "A": 80, "B": 20, "C": 30, "D": 40, "E": 50, "F": 60},
    inputs=("x",),
    outputs=("F", "E"),
)


def steps(schedule: Schedule) -> dict[str, int]:
    return {op.name: step for op, step in zip(DIAMOND.ops, schedule.step_of_op, strict=True)}


def test_levels_are_split_into_steps_of_at_most_k_ops() -> None:
    assert steps(multi_stream(DIAMOND, 3)) == {"a": 0, "b": 0, "d": 0, "c": 1, "e": 1, "f": 2}
    assert multi_stream(DIAMOND, 99) == multi_stream(DIAMOND, 3)
    # Two at a time: a b | d | c e | f, a step never mixes levels.
    assert steps(multi_stream(DIAMOND, 2)) == {"a": 0, "b": 0, "d": 1, "c": 2, "e": 2, "f": 3}
    # One at a time: level after level, not the graph's order.
    assert steps(multi_stream(DIAMOND, 1)) == {"a": 0, "b": 1, "d": 2, "c": 3, "e": 4, "f": 5}


def test_tensors_of_one_step_never_share() -> None:
    spans = lifetimes(DIAMOND, multi_stream(DIAMOND, 3))
    assert (spans["A"], spans["B"], spans["D"]) == ((0, 2), (0, 3), (0, 2))
    problem = to_problem(DIAMOND, multi_stream(DIAMOND, 3), alignment=1)
    # Step 1 runs c and e: A, B, C, D and E are there together.
    assert make_plan(problem).bound.nbytes == 80 + 20 + 30 + 40 + 50
    # One after another, A is gone before D is there: at step 5 B, C, E, F.
    assert make_plan(to_problem(DIAMOND, alignment=1)).bound.nbytes == 20 + 30 + 50 + 60


def test_an_op_in_place_waits_for_those_who_read_what_it_overwrites() -> None:
    net = make_graph(
        [
            Op("make", "op", ("x",), ("a",)),
            Op("read", "op", ("a",), ("b",)),
            Op("relu_", "op", ("a",), ("c",), ("a",)),
            Op("use", "op", ("c",), ("d",)),
            Op("again", "op", ("a",), ("e",)),
        ],
        {"x": 1, "a": 8, "b": 8, "d": 8, "e": 8},
        views={"c": "a"},
        inputs=("x",),
        outputs=("b", "d", "e"),
    )
    assert dependencies(net) == [(), (0,), (0, 1), (2,), (0, 2)]
    assert multi_stream(net, 8).step_of_op == (0, 1, 2, 3, 3)


@given(graphs(), st.integers(1, 5))
def test_multi_stream_is_a_schedule_of_steps_of_at_most_k_that_are_all_used(net, streams) -> None:
    schedule = multi_stream(net, streams)
    check_schedule(net, schedule)
    used = [schedule.step_of_op.count(step) for step in range(schedule.steps)]
    assert all(1 <= count <= streams for count in used)
    assert sum(used) == len(net.ops)
    assert check_schedule(net, sequential(net)).steps == len(net.ops)


@given(graphs())
def test_levels_are_the_longest_chains(net) -> None:
    before = dependencies(net)
    level: list[int] = []
    for earlier in before:
        assert all(other < len(level) for other in earlier)
        level.append(1 + max((level[other] for other in earlier), default=-1))
    assert list(multi_stream(net, len(net.ops)).step_of_op) == level


def test_a_person_gives_a_step_for_each_op() -> None:
    wanted = {"d": 0, "e": 1, "a": 1, "b": 1, "c": 2, "f": 9}
    schedule = by_steps(DIAMOND, wanted)
    assert (steps(schedule), schedule.steps) == (wanted, 10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"c": 1}, "s: op 'c': found step 1, but 'a', which it depends on, runs at step 1, expected a step"),
        ({"a": 3}, "s: op 'c': found step 2, but 'a', which it depends on, runs at step 3, expected a step"),
        ({"ghost": 1}, "s: op 'ghost': no such op, expected an op of net"),
        ({"e": -1}, f"s: op 'e': found step -1, expected 0 to {MOST_STEPS - 1}"),
        ({"f": MOST_STEPS}, f"s: op 'f': found step {MOST_STEPS}, expected 0 to {MOST_STEPS - 1}"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(changed, message) -> None:
    wanted = {"d": 0, "e": 1, "a": 1, "b": 1, "c": 2, "f": 9} | changed
    with pytest.raises(InputError) as caught:
        by_steps(DIAMOND, wanted, "s")
    assert str(caught.value).startswith(message)


def test_a_schedule_says_which_op_has_no_step() -> None:
    with pytest.raises(InputError, match="s: op 'b': found no step, expected a step for every op"):
        by_steps(DIAMOND, {"a": 0}, "s")
    with pytest.raises(InputError, match="found 1 steps, expected 6, one for each op"):
        check_schedule(DIAMOND, Schedule((0,), 1))
    with pytest.raises(InputError, match="op 'f': found step 7, expected below 6, the steps"):
        check_schedule(DIAMOND, Schedule((0, 1, 2, 3, 4, 7), 6))
    with pytest.raises(InputError, match="net: streams: found 0, expected 1 or more"):
        multi_stream(DIAMOND, 0)


def test_streams_run_their_ops_in_order_as_soon_as_they_can() -> None:
    # d waits for c on its stream, f for c on the other.
    schedule = by_streams(DIAMOND, [["a", "c", "d", "e"], ["b", "f"]])
    assert steps(schedule) == {"a": 0, "c": 1, "d": 2, "e": 3, "b": 0, "f": 2}


def test_streams_that_wait_for_each_other_are_named() -> None:
    # c waits for e on stream 1; e for d by data; d for f on stream 2; f for c by data.
    with pytest.raises(InputError) as caught:
        by_streams(DIAMOND, [["a", "e", "c"], ["b", "f", "d"]], "s.json")
    message = str(caught.value)
    assert message.startswith("s.json: streams: found streams that wait for each other: ")
    assert message.endswith("expected an assignment without cycles")
    cycle = message.split(": ")[-1].split(",")[0].split(" → ")
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"c", "e", "d", "f"}


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ([["a", "a"]], "op 'a': found the op twice, expected one place on one stream"),
        ([["a"], ["ghost"]], "op 'ghost': no such op"),
        ([["a"]], "op 'b': found no step"),
    ],
)
def test_streams_hold_every_op_once(streams, message) -> None:
    with pytest.raises(InputError, match=message):
        by_streams(DIAMOND, streams)


def test_schedules_come_from_files(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    head = {"format": "memplan/schedule", "version": 1}
    path.write_text(json.dumps(head | {"streams": [["a", "c", "d", "e"], ["b", "f"]]}))
    assert load_schedule(path, DIAMOND).step_of_op == (0, 0, 1, 2, 3, 2)
    path.write_text(json.dumps(head | {"steps": {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 2}}))
    assert load_schedule(path, DIAMOND).step_of_op == (0, 0, 1, 1, 2, 2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "s.json: fields steps and streams: found neither, expected one of them"),
        ({"steps": {}, "streams": []}, "s.json: fields steps and streams: found both, expected one of them"),
        ({"steps": {"a": 1.5}}, "s.json: field steps.a: found 1.5, expected a valid integer"),
        ({"steps": {"a": -1}}, "s.json: field steps.a: found -1, expected greater than or equal to 0"),
        ({"streams": [["a", 3]]}, "s.json: field streams[0][1]: found 3, expected a valid string"),
        ({"stream": []}, "s.json: field stream: found an unknown field"),
        (
            {"format": "memplan/graph"},
            "s.json: field format: found 'memplan/graph', expected memplan/schedule",
        ),
        ({"version": 2}, "s.json: field version: found 2, expected 1"),
    ],
)
def test_broken_schedule_files_are_refused(tmp_path: Path, body, message) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"format": "memplan/schedule", "version": 1} | body))
    with pytest.raises(InputError) as caught:
        load_schedule(path, DIAMOND)
    assert str(caught.value).startswith(message)


def test_an_op_that_a_file_names_twice_is_refused(tmp_path: Path) -> None:
    """A JSON parser keeps the last of two silently."""
    path = tmp_path / "s.json"
    steps = '"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "a": 9'
    path.write_text('{"format": "memplan/schedule", "version": 1, "steps": {' + steps + "}}")
    with pytest.raises(InputError, match=r"s\.json: found 'a' 2 times, expected every op once"):
        load_schedule(path, DIAMOND)


def test_multi_stream_keeps_the_order_of_random_numbers_and_of_effects() -> None:
    ops = (
        Op("draw", "aten.rand", ("x",), ("a",)),
        Op("say", "print", ("x",), ()),
        Op("draw again", "aten.rand", ("x",), ("b",)),
        Op("say again", "print", ("x",), ()),
        Op("add", "aten.add", ("x",), ("c",)),
    )
    sizes = {"x": 4, "a": 4, "b": 4, "c": 4}
    net = make_graph(ops, sizes, inputs=("x",), outputs=("a", "b", "c"))
    assert multi_stream(net, 8).step_of_op == (0, 0, 1, 1, 0)
    with pytest.raises(InputError, match=r"'draw again'.*step 0, but 'draw', which it depends on"):
        by_steps(net, {"draw": 0, "say": 0, "draw again": 0, "say again": 1, "add": 0})
