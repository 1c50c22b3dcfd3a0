"""The checker of reuse against real execution: sound transforms, and transforms made wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import adopt, load, make_plan
from memplan_engine.analysis.peak import find_peak
from memplan_engine.errors import PlanError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.rewrites.reuse import (
    Reason,
    check_plan_execution,
    check_reuse,
    place_concats,
    reuse,
    reused_problem,
    write_in_place,
)
from memplan_engine.rewrites.reuse.concat import _Draft as ConcatDraft
from memplan_engine.rewrites.reuse.in_place import _Draft as InPlaceDraft
from memplan_engine.schedule import Schedule, multi_stream, sequential
from tests.rewrites.reuse_graphs import execute, execute_as_it_is, execute_plan, net_of_four, random_graph


def random_case(seed: int, ops: int, streams: int) -> tuple[Graph, Schedule]:
    graph = random_graph(seed, ops)
    return graph, multi_stream(graph, streams) if streams else sequential(graph)


cases = given(st.integers(0, 10**6), st.integers(3, 18), st.integers(0, 3))


@cases
def test_reuse_is_sound_and_computes_the_same_bits(seed: int, ops: int, streams: int) -> None:
    graph, schedule = random_case(seed, ops, streams)
    reused = reuse(graph, schedule, alignment=4)
    assert check_reuse(graph, reused.graph, schedule, alignment=4) == ()
    plan = make_plan(reused_problem(reused, alignment=4), "greedy_by_size")
    assert check_plan_execution(plan, graph, alignment=4) == ()
    assert execute_plan(plan, Random(seed)) == execute_as_it_is(graph, schedule)


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
