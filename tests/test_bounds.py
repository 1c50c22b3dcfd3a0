"""Lower bounds, their certificates, and that no placement beats them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.bounds import Bound, BoundKind, contributors, lower_bound, offset_unit
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, Gap, make_problem, select
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.verify.certificates import proved_bytes
from tests.support import drawn, reference


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
    assert offset_unit(make_problem([], [], [])) == 1


def test_a_fixed_offset_bounds_the_arena_by_its_end():
    problem = make_problem([0, 4, 4], [4, 9, 9], [4, 5, 6], fixed=[FREE, 100, FREE], names=["a", "b", "c"])
    bound = lower_bound(problem)
    assert bound == Bound(105, BoundKind.FIXED, 4)
    assert contributors(problem, bound).tolist() == [1]
    plan = make_plan(problem)
    assert plan.optimal
    assert (
        certificate(plan)
        == "optimal for the buffers listed: the arena equals the end of b, whose offset is fixed"
    )


@pytest.mark.parametrize(("size", "gaps"), [(0, {}), (8, {0: (Gap(0, 2),)})])
def test_a_fixed_buffer_that_holds_no_bytes_where_it_begins_still_has_its_certificate(size, gaps):
    problem = make_problem([0, 0], [5, 5], [size, 3], fixed=[100, FREE], gaps=gaps, names=["a", "b"])
    plan = make_plan(problem)
    assert plan.bound == Bound(100 + size, BoundKind.FIXED, 0)
    assert contributors(problem, plan.bound).tolist() == [0]
    assert "the end of a, whose offset is fixed" in certificate(plan)


def test_gaps_count_only_their_window():
    problem = make_problem([0, 0], [4, 4], [10, 9], gaps={0: (Gap(0, 4, 2, 4),)})
    assert lower_bound(problem) == Bound(11, BoundKind.LOAD, 0)


def test_a_buffer_that_never_holds_all_its_bytes_at_once_still_ends_inside_the_arena():
    gaps = {0: (Gap(2, 3, 0, 5), Gap(3, 6, 5, 10))}
    problem = make_problem([2, 0], [6, 3], [10, 3], gaps=gaps, names="ab")
    bound = lower_bound(problem)
    assert bound == Bound(10, BoundKind.LARGEST, 2)
    assert contributors(problem, bound).tolist() == [0]
    assert proved_bytes(problem, bound) == 10
    assert proved_bytes(problem, replace(bound, nbytes=11)) == 10
    assert proved_bytes(problem, replace(bound, step=0)) == 3
    plan = make_plan(problem, "greedy_by_size")
    assert plan.optimal
    assert certificate(plan) == "optimal for the buffers listed: the arena equals the size of a"
    assert reference.optimum(problem) == 10


def test_one_buffer_is_enough_for_a_certificate_about_one():
    problem = make_problem([0, 0, 0], [2, 2, 2], [3, 10, 10])
    assert contributors(problem, Bound(10, BoundKind.LARGEST, 1)).tolist() == [1]
    fixed = make_problem([0, 0, 1], [1, 1, 2], [4, 0, 6], fixed=[4, 8, 2])
    assert contributors(fixed, Bound(8, BoundKind.FIXED, 0)).tolist() == [0]
    assert contributors(fixed, Bound(8, BoundKind.FIXED, 1)).tolist() == [2]


# -- units of each step


def test_the_unit_is_that_of_the_buffers_which_have_it():
    # At step 0 one buffer of any offset, at step 4 only some in units of 8.
    problem = make_problem([0, 4, 4, 4], [4, 5, 5, 5], [20, 7, 7, 7], alignment=[1, 8, 16, 8])
    assert offset_unit(problem) == 1
    bound = lower_bound(problem)
    assert bound == Bound(23, BoundKind.ALIGNED_LOAD, 4, 8)
    assert contributors(problem, bound).tolist() == [1, 2, 3]
    assert proved_bytes(problem, bound) == 23


def test_those_at_finer_offsets_are_left_out_where_units_count_more():
    # 3 bytes at any offset and three times 9 in units of 8: 16 + 16 + 9 against 30 bytes live.
    problem = make_problem([0] * 4, [1] * 4, [3, 9, 9, 9], alignment=[1, 8, 8, 8])
    bound = lower_bound(problem)
    assert bound == Bound(41, BoundKind.ALIGNED_LOAD, 0, 8)
    assert contributors(problem, bound).tolist() == [1, 2, 3]
    assert proved_bytes(problem, replace(bound, unit=16)) == 0
    assert make_plan(problem, "greedy_by_size").optimal


def test_the_unit_may_be_what_divides_two_alignments():
    # Units of 2 at step 0 only: 4 + 4 + 3 for 9 bytes.
    problem = make_problem([0, 0, 0, 1], [1, 1, 1, 2], [3, 3, 3, 1], alignment=[4, 6, 6, 1])
    assert lower_bound(problem) == Bound(11, BoundKind.ALIGNED_LOAD, 0, 2)
    assert proved_bytes(problem, lower_bound(problem)) == 11


def test_windows_that_begin_at_whole_units_count_in_units():
    gaps = {0: (Gap(0, 1, 8, 13),), 1: (Gap(0, 1, 3, 13),)}
    problem = make_problem([0] * 3, [1] * 3, [13, 13, 7], alignment=8, gaps=gaps)
    # a's window begins at a unit and b's does not: 8 + 7 for a and c, and 22 live bytes with b.
    assert lower_bound(problem) == Bound(22, BoundKind.LOAD, 0)
    assert proved_bytes(problem, Bound(13, BoundKind.ALIGNED_LOAD, 0, 8)) == 13
    assert contributors(problem, Bound(13, BoundKind.ALIGNED_LOAD, 0, 8)).tolist() == [2, 0]


def test_a_fixed_window_begins_at_a_unit_where_offset_and_window_together_do():
    # a's window begins at byte 6 + 2, b at a multiple of 8: 8 + 7 bytes in units of 8.
    problem = make_problem(
        [0, 0], [1, 1], [10, 7], alignment=[1, 8], fixed=[6, FREE], gaps={0: (Gap(0, 1, 2, 10),)}
    )
    bound = Bound(15, BoundKind.ALIGNED_LOAD, 0, 8)
    assert contributors(problem, bound).tolist() == [0, 1]
    assert proved_bytes(problem, bound) == 15


def test_of_equal_units_the_smallest_is_named():
    # 8 + 5 bytes at either step, in units of 8 at the first only.
    problem = make_problem([0, 0, 1, 1], [1, 1, 2, 2], [5] * 4, alignment=[8, 8, 4, 4])
    assert lower_bound(problem) == Bound(13, BoundKind.ALIGNED_LOAD, 0, 4)


def test_what_is_fixed_at_whole_units_counts_in_them():
    # a's window begins at byte 6 + 2 and fills a unit of 8; 8 + 8 + 8 + 5 against 23 bytes live.
    problem = make_problem(
        [0] * 4, [1] * 4, [10, 5, 5, 5], alignment=[1, 8, 8, 8], fixed=[6, FREE, FREE, FREE],
        gaps={0: (Gap(0, 1, 2, 10),)},
    )  # fmt: skip
    bound = lower_bound(problem)
    assert bound == Bound(29, BoundKind.ALIGNED_LOAD, 0, 8)
    assert contributors(problem, bound).tolist() == [0, 1, 2, 3]
    assert proved_bytes(problem, bound) == reference.optimum(problem) == 29


def test_sixteen_alignments_are_counted_in_those_that_most_buffers_have():
    # Each of 16 primes is asked for at three steps, 59 by two buffers together: 118 + 60 bytes in its units.
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]
    sizes, alignment = [*(3 * primes), 60, 60], [*(3 * primes), 59, 59]
    start = [*range(1, 49), 0, 0]
    end = [step + 1 for step in start]
    problem = make_problem(start, end, sizes, alignment=alignment)
    assert lower_bound(problem) == Bound(120, BoundKind.LOAD, 0)
    without_2 = select(problem, np.flatnonzero(problem.alignment != 2))
    assert lower_bound(without_2) == Bound(178, BoundKind.ALIGNED_LOAD, 0, 59)


# -- holes between fixed offsets


def test_a_buffer_larger_than_the_holes_below_lies_above():
    # Holes of 4, 6 and then all the rest from 24 on.
    problem = make_problem([0, 0, 0, 0], [9, 9, 2, 9], [4, 10, 7, 1], fixed=[4, 14, FREE, FREE], names="abcd")
    bound = lower_bound(problem)
    assert bound == Bound(31, BoundKind.BETWEEN_FIXED, 0, core=(2,))
    assert contributors(problem, bound).tolist() == [1, 2, 0]
    assert proved_bytes(problem, bound) == 31
    plan = make_plan(problem, "greedy_by_size")
    assert plan.optimal
    assert (
        certificate(plan)
        == "optimal for the buffers listed: the arena equals what 3 buffers need at step 0, "
        "some of them at fixed offsets"
    )


def test_of_equal_steps_the_first_is_named():
    # The same four buffers twice, one set behind the other.
    start, end = [0, 0, 0, 0, 9, 9, 9, 9], [9, 9, 2, 9, 18, 18, 11, 18]
    problem = make_problem(start, end, 2 * [4, 10, 7, 1], fixed=2 * [4, 14, FREE, FREE])
    assert lower_bound(problem) == Bound(31, BoundKind.BETWEEN_FIXED, 0, core=(2,))


def test_fixed_buffers_without_bytes_part_no_hole():
    # 8 bytes fit below 10, whatever has no bytes at 5; what holds nothing at the step is in no core.
    problem = make_problem([0] * 4, [1] * 4, [0, 10, 8, 4], fixed=[5, 10, FREE, FREE], gaps={3: (Gap(0, 1),)})
    assert proved_bytes(problem, Bound(8, BoundKind.BETWEEN_FIXED, 0, core=(2,))) == 8
    assert proved_bytes(problem, Bound(8, BoundKind.BETWEEN_FIXED, 0, core=(2, 3))) == 0


def test_what_the_large_holes_cannot_take_goes_on_top():
    # Of the holes 2 and 6 only the second has room for a 3; 3 × 3 bytes leave 3 for above 20.
    problem = make_problem([0] * 5, [1] * 5, [2, 10, 3, 3, 3], fixed=[2, 10, FREE, FREE, FREE])
    bound = lower_bound(problem)
    assert bound == Bound(23, BoundKind.BETWEEN_FIXED, 0, core=(2, 3, 4))
    assert reference.optimum(problem) == 23


def test_holes_begin_at_whole_units():
    # The hole from 3 to 16 begins at 8 for a buffer in units of 8, and has no room for 9 bytes.
    problem = make_problem([0] * 3, [1] * 3, [3, 4, 9], alignment=[1, 1, 8], fixed=[0, 16, FREE])
    bound = lower_bound(problem)
    assert bound == Bound(33, BoundKind.BETWEEN_FIXED, 0, core=(2,))
    assert proved_bytes(problem, bound) == reference.optimum(problem) == 33


def test_only_what_is_fixed_at_the_step_is_in_the_way():
    problem = make_problem([0, 1, 1], [1, 2, 2], [50, 10, 5], fixed=[10, 10, FREE])
    assert lower_bound(problem) == Bound(60, BoundKind.FIXED, 0)
    problem = make_problem([0, 1, 1], [1, 2, 2], [4, 10, 11], fixed=[10, 10, FREE])
    assert lower_bound(problem) == Bound(31, BoundKind.BETWEEN_FIXED, 1, core=(2,))


@pytest.mark.parametrize(
    ("core", "step", "proved"),
    [
        ((2,), 0, 31),
        ((3,), 0, 1),
        ((2, 3), 0, 12),
        ((), 0, 0),
        ((0,), 0, 0),
        ((2, 2), 0, 0),
        ((2,), 5, 0),
        ((7,), 0, 0),
        ((-2,), 0, 0),
    ],
)
def test_a_certificate_about_holes_proves_what_it_names(core, step, proved):
    problem = make_problem([0, 0, 0, 0], [9, 9, 2, 9], [4, 10, 7, 1], fixed=[4, 14, FREE, FREE])
    assert proved_bytes(problem, Bound(31, BoundKind.BETWEEN_FIXED, step, core=core)) == proved


@pytest.mark.parametrize(("others", "proved"), [(0, 110), (31, 110), (32, 100)])
def test_holes_are_looked_at_where_they_promise_most(others, proved):
    # 11 bytes have no room in holes of 4 and 10 and lie above 99. At the other steps 20 bytes do, below 99:
    # a whole step then promises 120 bytes and needs 100.
    rows = [(0, 46, 4), (0, 39, 60), (0, 11, FREE)]
    for step in range(1, others + 1):
        rows += [(step, 1, 99), (step, 20, FREE)]
    start, size, fixed = (list(column) for column in zip(*rows, strict=True))
    problem = make_problem(start, [step + 1 for step in start], size, fixed=fixed)
    assert lower_bound(problem).nbytes == proved


@pytest.mark.parametrize(
    ("sizes", "proved"),
    [
        ([4, 4], 8),  # the first hole exactly
        ([8], 8),
        ([4, 3], 7),
        ([3, 3, 3], 15),  # one byte is left, of a buffer of 3
        ([8, 8], 20),  # both holes exactly
        ([8, 9], 32),
        ([4, 4, 4, 5], 28),
        ([4] * 6, 32),
        ([9], 33),  # larger than every hole
    ],
)
def test_holes_are_filled_to_their_last_byte(sizes, proved):
    # Held are 8–12 and 20–24: holes of 8 and 8 bytes, and all above 24.
    rows = [4, 4, *sizes]
    problem = make_problem([0] * len(rows), [1] * len(rows), rows, fixed=[8, 20] + [FREE] * len(sizes))
    core = tuple(range(2, len(rows)))
    assert proved_bytes(problem, Bound(proved, BoundKind.BETWEEN_FIXED, 0, core=core)) == proved


@pytest.mark.parametrize(("size", "proved"), [(8, 8), (9, 23)])
def test_of_a_fixed_buffer_its_window_is_in_the_way(size, proved):
    # a lies at 4–14 and holds 8–14 at the step.
    problem = make_problem([0, 0], [1, 1], [10, size], fixed=[4, FREE], gaps={0: (Gap(0, 1, 4, 10),)})
    assert proved_bytes(problem, Bound(proved, BoundKind.BETWEEN_FIXED, 0, core=(1,))) == proved
    assert lower_bound(problem).nbytes == max(14, proved) == reference.optimum(problem)


def test_the_first_kind_of_equals_is_named():
    # LOAD 8 and the end of the fixed buffer, 8.
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[4, FREE])
    assert lower_bound(problem).kind is BoundKind.LOAD


@given(drawn.problems())
def test_the_load_is_at_most_the_bound_and_the_certificate_proves_it(problem):
    bound = lower_bound(problem)
    assert bound.nbytes >= reference.load(problem)
    assert proved_bytes(problem, bound) == bound.nbytes
    if bound.kind is BoundKind.LOAD:
        named = contributors(problem, bound).tolist()
        windows = [reference.held(problem, buffer, bound.step) for buffer in named]
        assert sum(high - low for low, high in windows) == bound.nbytes


@given(drawn.problems(most=5, steps=3, largest=6, alignments=st.sampled_from([1, 2, 3, 4, 6])))
def test_no_placement_at_all_is_below_the_bound(problem):
    """Gaps with windows, mixed alignments and fixed offsets."""
    bound = lower_bound(problem)
    assert bound.nbytes <= reference.optimum(problem)
    assert proved_bytes(problem, bound) == bound.nbytes


@given(drawn.problems(most=5, steps=2, largest=8, alignments=st.sampled_from([1, 1, 2, 4])), st.data())
def test_no_placement_is_below_what_the_checker_takes_for_proved(problem, data):
    """Any certificate at all, right or wrong."""
    kind = data.draw(st.sampled_from([kind for kind in BoundKind if kind is not BoundKind.CORE]))
    core = data.draw(st.lists(st.integers(-1, len(problem)), max_size=4))
    bound = Bound(
        data.draw(st.integers(0, 40)),
        kind,
        data.draw(st.integers(0, 3)),
        data.draw(st.sampled_from([0, 1, 2, 3, 4, 8])),
        tuple(core),
    )
    assert proved_bytes(problem, bound) <= reference.optimum(problem)


@given(drawn.problems(most=6, steps=3, largest=8, alignments=st.sampled_from([1, 2, 4])))
def test_the_buffers_of_a_certificate_have_the_bound_by_themselves(problem):
    bound = lower_bound(problem)
    rows = np.sort(contributors(problem, bound))
    assert lower_bound(select(problem, rows, "part")).nbytes == bound.nbytes


def test_the_aligned_bound_is_reached_where_all_are_live():
    # 3 + 5 + 2 bytes in units of 4: 4 + 8 + 2.
    problem = make_problem([0] * 3, [1] * 3, [3, 5, 2], alignment=4)
    assert lower_bound(problem).nbytes == reference.optimum(problem) == 13
