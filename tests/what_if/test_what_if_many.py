"""Suggestions where there is no time for trials: a heuristic has an answer always, said to be unproved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from memplan_engine import Drop, Gap, Resize, SolveLimits, apply, fit_into, make_plan, make_problem
from memplan_engine.reporters.what_if_tables import fit_summary, proof_words, suggestion_words
from memplan_engine.what_if.suggestions import suggest
from memplan_engine.what_if.suggestions.heuristic import Reduction, leave_out
from memplan_engine.what_if.suggestions.suggest import Kind

#   d ┌──┐         Live bytes: 10, 12, 12. For 10 bytes one of a, b, c (4 each) has to lose 2: of equals the
#   abc ─────      first at the fullest step that is live at most overfull ones.
THREE = make_problem([0, 1, 1, 0], [3, 3, 3, 1], [4, 4, 4, 6], names=list("abcd"))

NOWHERE = np.zeros(0, dtype=np.int64)
"""Offsets are not compared."""


def test_by_hand():
    dropped, shrunk = leave_out(make_plan(THREE, "greedy_by_size"), 10, SolveLimits(nodes=50_000))
    assert (dropped, dropped.nbytes) == (Reduction({0: 4}, 8, NOWHERE), 4)
    assert (shrunk, shrunk.nbytes) == (Reduction({0: 2}, 10, NOWHERE), 2)


def test_what_overhangs_goes_where_nothing_is_packed():
    # No time at all, and fixed offsets: what lies beyond the capacity is left out as the plan has it.
    problem = make_problem([0, 0], [2, 2], [4, 4], fixed=[0, 6])
    dropped, shrunk = leave_out(make_plan(problem, "naive"), 8, SolveLimits(-9.0))
    assert (dropped, shrunk) == (Reduction({1: 4}, 4, NOWHERE), None)


buffers = some.tuples(some.integers(0, 6), some.integers(1, 4), some.integers(1, 9))


@given(some.lists(buffers, min_size=1, max_size=9), some.integers(1, 30), some.integers(0, 4))
def test_the_rest_really_fits(rows, capacity, gap):
    start, length, size = (np.array(column) for column in zip(*rows, strict=True))
    gaps = {0: (Gap(int(start[0]), int(start[0]) + 1),)} if gap == 0 and length[0] > 1 else {}
    problem = make_problem(start, start + length, size, gaps=gaps)
    plan = make_plan(problem, "naive")
    for found, edit in zip(leave_out(plan, capacity, SolveLimits(nodes=50_000)), (Drop, Resize), strict=True):
        if found is None:
            continue
        assert found.arena_bytes <= capacity
        changed = problem.size.copy()
        changed[list(found.losses)] -= np.array(list(found.losses.values()), dtype=np.int64)
        kept = found.offsets >= 0
        assert kept.sum() == len(problem) - (len(found.losses) if edit is Drop else 0)
        if kept.any():
            assert (found.offsets + changed)[kept].max() == found.arena_bytes
        edits = [
            Drop(problem.names[row]) if edit is Drop else Resize(problem.names[row], int(size[row]) - loss)
            for row, loss in found.losses.items()
        ]
        assert make_plan(apply(problem, edits), "exact").arena_bytes <= found.arena_bytes


def crowd(n=300):
    random = np.random.default_rng(5)
    start = np.sort(random.integers(0, n, n))
    return make_problem(start, start + random.integers(1, 40, n), random.integers(1, 500, n))


@pytest.mark.parametrize("many", [0, 10**9])
def test_without_time_there_is_a_suggestion_all_the_same(monkeypatch, many):
    monkeypatch.setattr(suggest, "MANY", many)
    plan = make_plan(crowd(), "greedy_by_size")
    capacity = plan.bound.nbytes * 9 // 10
    fit = fit_into(plan, capacity, limits=SolveLimits(nodes=0))
    assert not fit.complete
    kinds = [each.kind for each in fit.suggestions]
    assert kinds[-1] in (Kind.DROP, Kind.DROP_SEVERAL)
    for each in fit.suggestions:
        assert (each.proved, each.exact, each.heuristic) == (False, False, True)
        assert each.arena_bytes <= capacity
        assert proof_words(each).startswith("not proved: a quick heuristic")
        assert suggestion_words(each, plan.problem).startswith(("drop", "shrink"))
    assert fit_summary(fit)["suggestions"][0]["heuristic"] is True


def test_what_was_searched_for_is_no_guess():
    fit = fit_into(make_plan(THREE, "exact"), 10, limits=SolveLimits(nodes=50_000))
    assert fit.suggestions
    assert not any(each.heuristic for each in fit.suggestions)
