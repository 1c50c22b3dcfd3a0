"""Live bytes, high water, holes and the peak."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import profile
from memplan_engine.analysis.peak import contents_of, find_peak
from memplan_engine.analysis.workspaces import predicted_live, with_workspaces
from memplan_engine.bounds import lower_bound
from memplan_engine.lifetimes import to_problem
from memplan_engine.planner import make_plan
from memplan_engine.problem import Gap, make_problem
from memplan_engine.profile import bytes_at, live_at, load_of, make_profile
from memplan_engine.schedule import multi_stream
from memplan_engine.what_if.suggestions.cover import find_shortage
from tests.analysis.test_layout import NET
from tests.support import drawn, reference
from tests.support.graphs import graphs

#   step  0  1  2  3  4      0: [0, 2) of 4 bytes at 0, 1: [1, 4) of 3 bytes at 6, 2: [3, 5) of 2 bytes at 0,
#   live  4  7  3  5  2      3: [3, 4) of no bytes.
THREE = make_problem([0, 1, 3, 3], [2, 4, 5, 4], [4, 3, 2, 0])
OFFSETS = np.array([0, 6, 0, 0])


def test_a_profile_by_hand():
    profile = make_profile(THREE, OFFSETS)
    assert profile.sections.bounds.tolist() == [0, 1, 2, 3, 4, 5]
    assert profile.live.tolist() == [4, 7, 3, 5, 2]
    assert profile.high_water.tolist() == [4, 9, 9, 9, 2]
    assert profile.holes.tolist() == [0, 2, 6, 4, 0]
    assert profile.peak_step == 1


def test_the_peak_is_the_first_step_of_equals():
    assert make_profile(make_problem([1, 5], [2, 7], [4, 4]), np.zeros(2, dtype=np.int64)).peak_step == 1


def test_steps_before_and_after_all_buffers_are_empty():
    profile = make_profile(make_problem([2], [3], [5], steps=6), np.array([7]))
    assert profile.sections.bounds.tolist() == [0, 2, 3, 6]
    assert profile.live.tolist() == [0, 5, 0]
    assert profile.high_water.tolist() == [0, 12, 0]


def test_no_buffers():
    for steps in (None, 3):
        profile = make_profile(make_problem([], [], [], steps=steps), np.zeros(0, dtype=np.int64))
        assert profile.live.sum() == profile.high_water.sum() == 0
        assert profile.peak_step == 0
        assert len(profile.live) == len(profile.sections) == (1 if steps else 0)


def test_the_time_of_a_problem_is_cut_once_whoever_asks_and_gone_with_it(monkeypatch):
    known, cuts = profile.cut_time, []
    monkeypatch.setattr(profile, "cut_time", lambda *given: cuts.append(given) or known(*given))
    problem = make_problem([0, 1, 3], [2, 4, 5], [4, 3, 2], gaps={1: (Gap(2, 3),)})
    make_profile(problem, np.zeros(3, dtype=np.int64))
    assert (find_peak(problem).nbytes, lower_bound(problem).nbytes, load_of(problem).peak) == (7, 7, 7)
    assert find_shortage(problem, 6).step == 1
    assert len(cuts) == 1
    # Another problem has another timeline: nothing of it is taken over.
    assert load_of(replace(problem, gaps={})).live.tolist() == [4, 7, 3, 5, 2]
    live = weakref.ref(load_of(problem).live)
    del problem
    cuts.clear()
    gc.collect()
    assert live() is None


def test_what_is_live_largest_first():
    assert live_at(THREE, 1).tolist() == [0, 1]
    assert live_at(THREE, 3).tolist() == [1, 2]
    assert live_at(THREE, 9).tolist() == []
    assert live_at(make_problem([0, 0, 0], [1, 1, 1], [2, 5, 2]), 0).tolist() == [1, 0, 2]


def test_bytes_in_a_gap_are_those_of_its_window():
    problem = make_problem([0, 0], [9, 9], [10, 4], gaps={0: (Gap(2, 4), Gap(5, 7, 3, 6))})
    assert [bytes_at(problem, 0, step) for step in range(10)] == [10, 10, 0, 0, 10, 3, 3, 10, 10, 0]
    assert [live_at(problem, step).tolist() for step in (1, 3, 5)] == [[0, 1], [1], [1, 0]]


def test_the_contributors_of_the_peak_sum_to_it():
    problem = make_problem(
        [0, 0, 0], [2, 9, 9], [7, 10, 4], gaps={1: (Gap(1, 3, 0, 2),)}, names=["a", "b", "c"]
    )
    peak = find_peak(problem)
    assert (peak.step, peak.nbytes, peak.ops) == (0, 21, ())
    assert [(part.name, part.nbytes, part.buffer) for part in peak.contributors] == [
        ("b", 10, 1),
        ("a", 7, 0),
        ("c", 4, 2),
    ]
    later = contents_of(problem, 1)
    assert [(part.name, part.nbytes) for part in later.contributors] == [("a", 7), ("c", 4), ("b", 2)]
    assert later.nbytes == 13


@given(drawn.problems())
def test_every_step_agrees_with_counting(problem):
    offsets = np.array(reference.place(problem, range(len(problem)), "first"), dtype=np.int64)
    profile = make_profile(problem, offsets)
    for step in range(problem.steps):
        section = profile.sections.at(step)
        spans = [(b, reference.held(problem, b, step)) for b in range(len(problem))]
        tops = [int(offsets[b]) + span[1] for b, span in spans if span]
        assert profile.live[section] == reference.live_at(problem, step)
        assert profile.high_water[section] == max(tops, default=0)
        assert profile.holes[section] >= 0
        live = [(b, span[1] - span[0]) for b, span in spans if span and span[1] > span[0]]
        assert live_at(problem, step).tolist() == [b for b, _ in sorted(live, key=lambda x: (-x[1], x[0]))]
    assert profile.live.max(initial=0) == reference.load(problem) == find_peak(problem).nbytes


def test_the_peak_counts_what_ops_hold_for_themselves():
    """Steps 0 to 3 hold 64, 128, 128 and 74 bytes of buffers, 57 that are kept for single ops, and 100, 0,
    300 and 200 that ops share."""
    problem = to_problem(NET, alignment=1)
    plan = make_plan(problem)
    profile, peak = make_profile(problem, plan.offsets), find_peak(problem)
    assert (profile.peak_step, profile.peak_bytes, profile.live_at_peak) == (2, 128 + 57 + 300, 128)
    assert (peak.step, peak.nbytes, peak.workspace_bytes) == (2, 485, 357)
    assert [(part.name, part.nbytes, part.buffer) for part in peak.contributors] == [
        ("conv2.workspace", 300, None), ("b", 64, 1), ("c", 64, 2), ("unique workspaces", 57, None),
    ]  # fmt: skip
    assert [contents_of(problem, step).nbytes for step in range(4)] == [64 + 157, 128 + 57, 485, 74 + 257]
    assert (plan.arena_bytes, plan.workspace_bytes, plan.total_bytes) == (128, 357, 485)
    together = to_problem(NET, multi_stream(NET, 4), alignment=1)
    assert find_peak(together).nbytes == 485


@given(st.data(), graphs(most_ops=6))
def test_no_step_holds_more_than_the_peak(data, graph):
    held = data.draw(st.lists(st.integers(0, 400), min_size=len(graph.ops), max_size=len(graph.ops)))
    graph = with_workspaces(graph, {op.name: size for op, size in zip(graph.ops, held, strict=True)})
    problem = to_problem(graph, alignment=1)
    peak = find_peak(problem)
    each = [contents_of(problem, step).nbytes for step in range(problem.steps)]
    assert (peak.nbytes, peak.step) == (max(each), each.index(max(each)))
    assert peak.nbytes == predicted_live(graph).max()
    plan = make_plan(problem, "greedy_by_size")
    assert peak.nbytes <= plan.total_bytes == plan.arena_bytes + max(held)
