"""The independent checker: one test a rule, plans broken on purpose, and a large one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memplan_engine.bounds import Bound, BoundKind
from memplan_engine.kernels.verify.sweep import NOBODY, find_collisions
from memplan_engine.planner import adopt, make_plan
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.verify.validate import Report, Rule, Violation, validate_plan
from tests.support import drawn, reference

PAIR = make_problem([0, 2], [5, 8], [64, 32], alignment=16, names=["a", "b"])


def only(report: Report) -> Violation:
    assert len(report.violations) == 1
    assert report.counts == {report.violations[0].rule: 1}
    assert not report.valid
    return report.violations[0]


def test_a_valid_plan_has_no_violation():
    assert validate_plan(adopt(PAIR, [0, 64])) == Report((), {})
    assert validate_plan(adopt(PAIR, [32, 0])).valid


def test_rule_count():
    found = only(validate_plan(adopt(PAIR, [0])))
    assert (found.rule, found.message) == (Rule.COUNT, "1 offsets for 2 buffers")


@pytest.mark.parametrize("offset", [-16, 2**63 - 16])
def test_rule_range(offset):
    report = validate_plan(adopt(PAIR, [0, offset]))
    assert [v.rule for v in report.violations] == [Rule.RANGE]
    found = report.violations[0]
    assert found.message == f"b: offset {offset} with size 32"
    assert (found.buffers, found.steps) == (("b",), (2, 8))
    assert found.byte_range == (offset, offset + 32)


def test_the_last_byte_there_is_may_be_used():
    assert validate_plan(adopt(make_problem([0], [1], [15]), [2**63 - 16])).valid


def test_rule_alignment():
    found = only(validate_plan(adopt(PAIR, [0, 72])))
    assert found.rule is Rule.ALIGNMENT
    assert found.message == "b: offset 72 is not a multiple of alignment 16"
    assert (found.buffers, found.steps, found.byte_range) == (("b",), (2, 8), (72, 104))


def test_rule_fixed():
    problem = make_problem([0, 0], [1, 1], [4, 4], fixed=[8, FREE], names=["a", "b"])
    found = only(validate_plan(adopt(problem, [12, 0])))
    assert (found.rule, found.message) == (Rule.FIXED, "a: offset 12, fixed at 8")
    assert found.byte_range == (12, 16)


def test_rule_overlap_names_both_buffers_the_steps_and_the_bytes():
    found = only(validate_plan(adopt(PAIR, [0, 48])))
    assert found.rule is Rule.OVERLAP
    assert found.buffers == ("a", "b")
    assert found.steps == (2, 5)
    assert found.byte_range == (48, 64)
    assert found.message == "a and b overlap at steps 2–4 in bytes 48–63 (16 bytes)"


def test_buffers_that_touch_in_time_or_in_bytes_do_not_overlap():
    problem = make_problem([0, 3, 3], [3, 6, 6], [10, 10, 10])
    assert validate_plan(adopt(problem, [0, 0, 10])).valid


def test_one_inside_another_and_equal_rectangles_overlap():
    inside = make_problem([0, 2], [9, 3], [100, 1])
    assert only(validate_plan(adopt(inside, [0, 50]))).byte_range == (50, 51)
    twice = make_problem([1, 1], [2, 2], [7, 7])
    assert (
        only(validate_plan(adopt(twice, [0, 0]))).message
        == "0 and 1 overlap at steps 1–1 in bytes 0–6 (7 bytes)"
    )


@pytest.mark.parametrize("ranges", [1, 2, 3, 5, 8])
def test_the_sweep_finds_any_two_ranges_that_meet_and_forgets_what_has_ended(ranges):
    for one, other in product(combinations(range(ranges + 1), 2), repeat=2):
        # One begins, the other begins, one ends, and one begins once more.
        low, high = np.array([one, other, one]).T
        meet = max(one[0], other[0]) < min(one[1], other[1])
        found = find_collisions(np.array([0, 1, -1, 2]), low, high, ranges)
        assert found.tolist() == [NOBODY, 0 if meet else NOBODY, NOBODY]


def test_buffers_without_bytes_overlap_nothing():
    assert validate_plan(adopt(make_problem([0, 0, 0], [1, 1, 1], [8, 0, 0]), [0, 4, 4])).valid


def test_gaps_and_windows_give_their_bytes_away():
    problem = make_problem([0, 2], [10, 4], [8, 8], gaps={0: (Gap(2, 4),)})
    assert validate_plan(adopt(problem, [0, 0])).valid
    window = make_problem([0, 2], [10, 4], [8, 6], gaps={0: (Gap(2, 4, 0, 2),)})
    assert validate_plan(adopt(window, [0, 2])).valid
    assert (
        only(validate_plan(adopt(window, [0, 1]))).message
        == "0 and 1 overlap at steps 2–3 in bytes 1–1 (1 bytes)"
    )


def test_a_pair_is_named_once_however_often_it_meets():
    problem = make_problem([0, 0], [10, 10], [8, 8], gaps={0: (Gap(2, 4), Gap(6, 8))})
    report = validate_plan(adopt(problem, [0, 0]))
    assert [v.buffers for v in report.violations] == [("0", "1")]


def test_what_overlaps_only_a_buffer_that_is_already_wrong_is_named_as_well():
    # 1 overlaps 0 and is left out of the sweep; 2 overlaps only 1.
    problem = make_problem([0, 1, 2], [9, 9, 9], [4, 4, 4])
    report = validate_plan(adopt(problem, [0, 3, 6]))
    assert {v.buffers for v in report.violations} == {("0", "1"), ("1", "2")}


def test_many_violations_are_counted_and_the_first_hundred_named():
    n = 5 * 100
    problem = make_problem([0] * n, [1] * n, [2] * n, alignment=2)
    report = validate_plan(adopt(problem, [1] * n))
    assert report.counts == {Rule.ALIGNMENT: n, Rule.OVERLAP: n - 1}
    assert len(report.violations) == 2 * 100


@pytest.mark.parametrize(
    ("bound", "proved"),
    [
        (Bound(97, BoundKind.LOAD, 2), 96),
        (Bound(95, BoundKind.LOAD, 2), 96),
        (Bound(96, BoundKind.LOAD, 6), 32),
        (Bound(128, BoundKind.ALIGNED_LOAD, 2, 64), 0),
        (Bound(128, BoundKind.ALIGNED_LOAD, 2, 16), 96),
        (Bound(112, BoundKind.ALIGNED_LOAD, 2, 0), 96),
        (Bound(96, BoundKind.FIXED, 2), 0),
        (Bound(96, BoundKind.LOAD, 99), 0),
    ],
)
def test_rule_bound_works_the_certificate_out_anew(bound, proved):
    found = only(validate_plan(replace(adopt(PAIR, [0, 64]), bound=bound)))
    assert found.rule is Rule.BOUND
    assert f"proves {proved} bytes, the plan states {bound.nbytes}" in found.message


def test_an_aligned_certificate_with_a_unit_that_not_every_offset_keeps_is_refused():
    problem = make_problem([0, 0], [1, 1], [3, 3], alignment=[8, 4])
    assert validate_plan(replace(adopt(problem, [0, 4]), bound=Bound(7, BoundKind.ALIGNED_LOAD, 0, 4))).valid
    found = only(
        validate_plan(replace(adopt(problem, [0, 4]), bound=Bound(11, BoundKind.ALIGNED_LOAD, 0, 8)))
    )
    assert found.rule is Rule.BOUND


@given(problem=drawn.problems(least=2), data=st.data())
def test_overlaps_are_found_exactly_where_brute_force_finds_them(problem, data):
    """Any offsets at all: the checker's pairs, steps and bytes against all pairs at all steps."""
    offsets = [data.draw(st.integers(0, 40)) * int(a) for a in problem.alignment]
    offsets = [o if f == FREE else int(f) for o, f in zip(offsets, problem.fixed.tolist(), strict=True)]
    report = validate_plan(adopt(problem, offsets))
    expected = reference.overlaps(problem, offsets)
    assert report.valid == (not expected)
    assert set(report.counts) <= {Rule.OVERLAP}
    for violation in report.violations:
        one, other = (int(name) for name in violation.buffers)
        assert violation.steps[0] in expected[one, other]
        low, high = violation.byte_range
        spans = [reference.held(problem, b, violation.steps[0]) for b in (one, other)]
        placed = [
            (offsets[b] + span[0], offsets[b] + span[1]) for b, span in zip((one, other), spans, strict=True)
        ]
        assert (low, high) == (max(span[0] for span in placed), min(span[1] for span in placed))


@given(problem=drawn.problems(least=2, fixed=False), data=st.data())
def test_an_overlap_made_on_purpose_is_always_caught(problem, data):
    plan = make_plan(problem, "greedy_by_size")
    one, other = data.draw(st.permutations(range(len(problem))).map(lambda order: order[:2]))
    moved = plan.offsets.copy()
    moved[one] = moved[other]
    pair = (min(one, other), max(one, other))
    assume(pair in reference.overlaps(problem, moved.tolist()))
    names = tuple(problem.names[buffer] for buffer in pair)
    assert names in [v.buffers for v in validate_plan(replace(plan, offsets=moved)).violations]


def test_one_overlap_among_300_000_buffers_is_found():
    n = 300_000
    random = np.random.default_rng(0)
    # 100 rows of buffers of at most 64 bytes, one after the other in time, each in its own 64 bytes.
    row, place = np.arange(n) % 100, np.arange(n) // 100
    problem = make_problem(place * 3, place * 3 + random.integers(1, 4, n), random.integers(2, 65, n))
    offsets = row * 64
    assert validate_plan(adopt(problem, offsets)).valid
    offsets[123_456] = offsets[123_457] - 1
    found = only(validate_plan(adopt(problem, offsets)))
    assert found.buffers == ("123456", "123457")
    assert found.byte_range[0] == 57 * 64
