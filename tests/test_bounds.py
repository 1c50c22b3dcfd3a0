"""Lower bounds, their certificates, and that no placement beats them."""

from __future__ import annotations

import drawn
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound, offset_unit
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.tables import certificate
from memplan_engine.validate import proved_bytes


def test_the_load_is_what_is_live_at_its_first_busiest_step():
    problem = make_problem([0, 1, 3], [2, 4, 5], [4, 3, 2])
    assert lower_bound(problem) == Bound(7, BoundKind.LOAD, 1)
    assert contributors(problem, lower_bound(problem)).tolist() == [0, 1]


def test_alignment_lifts_the_bound_by_all_padding_but_the_largest():
    # At step 0: 5, 6 and 3 bytes in units of 8: 8 + 8 + 3, the last with the largest padding on top.
    problem = make_problem([0, 0, 0], [1, 1, 1], [5, 6, 3], alignment=8)
    bound = lower_bound(problem)
    assert bound == Bound(19, BoundKind.ALIGNED_LOAD, 0, 8)
    assert contributors(problem, bound).tolist() == [1, 0, 2]
    assert make_plan(problem).optimal


def test_the_step_of_the_aligned_bound_need_not_be_that_of_the_load():
    # Step 0: 20 bytes in one buffer. Step 1: 3 × 6 = 18 bytes, which need 8 + 8 + 6 = 22.
    problem = make_problem([0, 1, 1, 1], [1, 2, 2, 2], [20, 6, 6, 6], alignment=8)
    assert lower_bound(problem) == Bound(22, BoundKind.ALIGNED_LOAD, 1, 8)


def test_one_buffer_is_not_lifted_by_its_alignment():
    assert lower_bound(make_problem([0], [1], [5], alignment=64)) == Bound(5, BoundKind.LOAD, 0)


def test_mixed_alignments_count_in_their_common_divisor():
    problem = make_problem([0, 0], [1, 1], [3, 3], alignment=[4, 6])
    assert offset_unit(problem) == 2
    assert lower_bound(problem) == Bound(7, BoundKind.ALIGNED_LOAD, 0, 2)


@pytest.mark.parametrize(
    ("fixed", "alignment", "unit"),
    [
        ([FREE, FREE], [64, 16], 16),
        ([48, FREE], [16, 64], 16),
        ([96, FREE], [16, 64], 32),
        ([0, FREE], [1, 64], 64),
        ([0, 0], [1, 1], 1),
    ],
)
def test_every_offset_is_a_multiple_of_the_unit(fixed, alignment, unit):
    assert offset_unit(make_problem([0, 5], [5, 9], [1, 1], fixed=fixed, alignment=alignment)) == unit


def test_a_fixed_offset_bounds_the_arena_by_its_end():
    problem = make_problem([0, 4, 4], [4, 9, 9], [4, 5, 6], fixed=[FREE, 100, FREE], names=["a", "b", "c"])
    bound = lower_bound(problem)
    assert bound == Bound(105, BoundKind.FIXED, 4)
    assert contributors(problem, bound).tolist() == [1]
    plan = make_plan(problem)
    assert plan.optimal
    assert certificate(plan) == "optimal: the arena equals the end of b, whose offset is fixed"


@pytest.mark.parametrize(("size", "gaps"), [(0, {}), (8, {0: (Gap(0, 2),)})])
def test_a_fixed_buffer_that_holds_no_bytes_where_it_begins_still_has_its_certificate(size, gaps):
    problem = make_problem([0, 0], [5, 5], [size, 3], fixed=[100, FREE], gaps=gaps, names=["a", "b"])
    plan = make_plan(problem)
    assert plan.bound == Bound(100 + size, BoundKind.FIXED, 0)
    assert contributors(problem, plan.bound).tolist() == [0]
    assert "the end of a, whose offset is fixed" in certificate(plan)


def test_gaps_count_only_their_window():
    problem = make_problem([0, 0], [4, 4], [10, 6], gaps={0: (Gap(0, 4, 2, 4),)})
    assert lower_bound(problem) == Bound(8, BoundKind.LOAD, 0)


def test_the_first_kind_of_equals_is_named():
    # LOAD 8 and the end of the fixed buffer, 8.
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[4, FREE])
    assert lower_bound(problem).kind is BoundKind.LOAD


@given(drawn.problems())
@settings(max_examples=200, deadline=None)
def test_the_load_is_at_most_the_bound_and_the_certificate_proves_it(problem):
    bound = lower_bound(problem)
    assert bound.nbytes >= reference.load(problem)
    assert proved_bytes(problem, bound) == bound.nbytes
    if bound.kind is BoundKind.LOAD:
        named = contributors(problem, bound).tolist()
        windows = [reference.held(problem, buffer, bound.step) for buffer in named]
        assert sum(high - low for low, high in windows) == bound.nbytes


@given(drawn.problems(most=4, steps=3, largest=6, gaps=False, alignments=st.sampled_from([2, 4, 6])))
@settings(max_examples=150, deadline=None)
def test_no_placement_at_all_is_below_the_bound(problem):
    assert lower_bound(problem).nbytes <= reference.optimum(problem)


def test_the_aligned_bound_is_reached_where_all_are_alive():
    # 3 + 5 + 2 bytes in units of 4: 4 + 8 + 2.
    problem = make_problem([0] * 3, [1] * 3, [3, 5, 2], alignment=4)
    assert lower_bound(problem).nbytes == reference.optimum(problem) == 13
