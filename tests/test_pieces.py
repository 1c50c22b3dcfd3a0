"""Cutting buffers at their gaps, and time at every edge."""

from __future__ import annotations

from hypothesis import given

from memplan_engine.problem import Gap, cut, make_problem
from memplan_engine.profile import cut_time
from tests.support import drawn, reference


def rows(problem):
    pieces = cut(problem)
    columns = (pieces.owner, pieces.start, pieces.end, pieces.low, pieces.high)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_without_gaps_each_buffer_is_one_piece():
    problem = make_problem([0, 2], [3, 5], [10, 0])
    assert rows(problem) == [(0, 0, 3, 0, 10), (1, 2, 5, 0, 0)]
    assert cut(problem).first.tolist() == [0, 1, 2]


def test_gaps_cut_and_windows_stay():
    gaps = {1: (Gap(7, 9, 2, 6), Gap(3, 5)), 2: (Gap(0, 4),)}
    problem = make_problem([0, 1, 0], [3, 10, 4], [10, 8, 5], gaps=gaps)
    assert rows(problem) == [
        (0, 0, 3, 0, 10),
        (1, 1, 3, 0, 8),
        (1, 5, 7, 0, 8),
        (1, 7, 9, 2, 6),
        (1, 9, 10, 0, 8),
    ]
    assert cut(problem).first.tolist() == [0, 1, 5, 5]


def test_gaps_that_touch_each_other_and_the_edges_leave_no_empty_piece():
    gaps = {0: (Gap(0, 2), Gap(2, 4, 1, 3), Gap(4, 6))}
    assert rows(make_problem([0], [6], [5], gaps=gaps)) == [(0, 2, 4, 1, 3)]


def test_sections_start_wherever_something_changes():
    problem = make_problem([2, 4], [6, 9], [1, 1], steps=12)
    sections = cut_time(problem, cut(problem))
    assert sections.bounds.tolist() == [0, 2, 4, 6, 9, 12]
    assert sections.first.tolist() == [1, 2]
    assert sections.last.tolist() == [3, 4]
    assert [sections.at(step) for step in (0, 1, 2, 3, 8, 9, 11)] == [0, 0, 1, 1, 3, 4, 4]


def test_a_lifetime_that_begins_and_ends_in_gaps_still_has_its_edges():
    problem = make_problem([2], [9], [4], gaps={0: (Gap(2, 4), Gap(6, 9))}, steps=10)
    assert cut_time(problem, cut(problem)).bounds.tolist() == [0, 2, 4, 6, 9, 10]


@given(drawn.problems())
def test_the_pieces_hold_what_the_buffers_hold_at_each_step(problem):
    pieces = rows(problem)
    for buffer in range(len(problem)):
        own = [row for row in pieces if row[0] == buffer]
        assert own == sorted(own)
        assert all(start < end for _, start, end, _, _ in own)
        for step in range(problem.steps):
            held = [(low, high) for _, start, end, low, high in own if start <= step < end]
            expected = reference.held(problem, buffer, step)
            assert held == ([] if expected is None else [expected])
    first = cut(problem).first.tolist()
    assert first == sorted(first)
    assert [b for b in range(len(problem)) for _ in range(first[b], first[b + 1])] == [
        row[0] for row in pieces
    ]
