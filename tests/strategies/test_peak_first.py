"""What is around the peak packed first: the window by hand, the rest around it, what a search gains by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.bounds import lower_bound
from memplan_engine.planner import adopt
from memplan_engine.problem import FREE, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.search import local_search
from memplan_engine.strategies.search.local_search import LocalSearch
from memplan_engine.strategies.search.moves import distances, held_at, peak_window
from memplan_engine.strategies.search.search_params import SearchParams
from memplan_engine.verify.validate import validate_plan
from tests.support import tight

# One row a buffer; the peak is step 4, where b and c are live: 7 bytes.
SMALL = SearchParams(peak_buffers=1)
HILL = make_problem([0, 1, 4, 6, 8], [1, 5, 6, 8, 9], [2, 3, 4, 5, 6])


def around_a_peak(seed: int):
    """A few steps that hold exactly 60 bytes each, and far from them, on both sides, at most 51."""
    random = np.random.default_rng(seed)
    core = np.array(tight.crowded_rows(random, 12, 60, 20)) + np.array([400, 400, 0])
    middle = core[:, 1].max()
    sides = [
        (begin, begin + int(random.integers(1, 7)), int(random.integers(1, 18)))
        for begin in [*range(0, 390, 3), *range(middle + 4, middle + 400, 3)]
    ]
    return make_problem(*np.concatenate([core, sides]).T), len(core)


def test_distances_by_hand():
    """Sections: 0, 1–3, 4, 5, 6–7, 8. The busiest is the third, of step 4."""
    assert distances(make_timeline(HILL)).tolist() == [2, 0, 0, 2, 3]


@pytest.mark.parametrize(
    ("share", "rows"), [(1.0, [1, 2]), (1.5, [0, 1, 2, 3]), (2.0, [0, 1, 2, 3]), (2.5, [0, 1, 2, 3, 4])]
)
def test_who_is_as_near_as_the_last_is_in_the_window_too(share, rows):
    assert peak_window(make_timeline(HILL), share).tolist() == rows


def test_a_window_wanted_larger_than_the_problem_is_the_problem():
    assert peak_window(make_timeline(HILL), 9.0).tolist() == [0, 1, 2, 3, 4]


def test_what_is_packed_first_is_held_and_nothing_else():
    held = held_at(HILL, np.array([1, 2]), np.array([4, 0]))
    assert held.problem.fixed.tolist() == [FREE, 4, 0, FREE, FREE]
    assert (HILL.fixed == FREE).all()


@given(st.integers(0, 10_000))
def test_a_window_holds_the_whole_peak(seed):
    problem, _ = around_a_peak(seed)
    rows = peak_window(make_timeline(problem), 1.2)
    inside = make_problem(problem.start[rows], problem.end[rows], problem.size[rows])
    assert lower_bound(inside).nbytes == lower_bound(problem).nbytes


@pytest.mark.parametrize("seed", range(5))
def test_from_no_reuse_to_the_bound_by_the_peak_alone(seed):
    problem, _ = around_a_peak(seed)
    search = LocalSearch(make_timeline(problem), SolveLimits(), lower_bound(problem).nbytes, 50_000, SMALL)
    search.consider(np.cumsum(problem.size) - problem.size, "naive")
    for _ in range(6):
        search.pack_peak_first()
    assert search.arena == search.bound == 60
    assert search.best.found_by.startswith("peak first, ")
    plan = adopt(problem, search.best.offsets, "search")
    assert validate_plan(plan).valid


def test_its_moves_count_and_a_limit_on_them_holds():
    problem, _ = around_a_peak(1)
    search = LocalSearch(make_timeline(problem), SolveLimits(), lower_bound(problem).nbytes - 1, 100, SMALL)
    search.consider(np.cumsum(problem.size) - problem.size, "naive")
    for _ in range(4):
        search.pack_peak_first()
    assert 0 < search.moves <= 100


def test_a_window_is_given_up_when_the_best_arena_is_lower(monkeypatch):
    """Nothing is placed around what would not help."""
    problem, _ = around_a_peak(2)
    search = LocalSearch(make_timeline(problem), SolveLimits(), lower_bound(problem).nbytes, 1000, SMALL)
    offsets = np.cumsum(problem.size) - problem.size
    search.consider(offsets, "naive")
    monkeypatch.setattr(LocalSearch, "pack_window", lambda self, rows, turn: self)
    monkeypatch.setattr(
        local_search, "held_at", lambda *_: pytest.fail("placed around a window that is no better")
    )
    search.pack_peak_first()
    assert search.windows == 1
    assert search.best.found_by == "naive"


def test_few_buffers_or_such_with_fixed_offsets_are_left_to_the_rest_of_the_search():
    problem, _ = around_a_peak(3)
    search = LocalSearch(make_timeline(problem), SolveLimits(), 0, 1000)
    search.consider(np.cumsum(problem.size) - problem.size, "naive")
    search.pack_peak_first()
    assert search.windows == 0
