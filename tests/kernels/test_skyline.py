"""Skylines: the kernel against its definition, by hand, and what search and auto gain by them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.search import skyline
from memplan_engine.kernels.search.time_index import make_time_index
from memplan_engine.problem import Gap, make_problem
from memplan_engine.strategies.auto import Auto
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import OTHERS, STARTS, place_by
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.search import local_search
from memplan_engine.strategies.search.local_search import SKYLINE, LocalSearch, Search
from memplan_engine.strategies.search.search_params import DEFAULTS
from memplan_engine.strategies.search.urgency_fit import Skylines, fullness
from tests.support import drawn, reference


def place(problem, order, limit=skyline.PLACED, stop=False):
    timeline, n = make_timeline(problem), len(problem)
    start, end, size, alignment = (
        np.array(column)
        for column in (timeline.sections.first, timeline.sections.last, problem.size, problem.alignment)
    )
    times = make_time_index(np.arange(n + 1), start, end, np.zeros_like(size), size, len(timeline.sections))
    stopped = np.array([stop])
    return skyline.place_by_skyline(np.array(order), start, end, size, alignment, times, limit, stopped)


def by_definition(problem, order):
    """Always the first of all: the lowest, of equals the earlier in `order`."""
    offsets = np.zeros(len(problem), dtype=np.int64)
    lows = {b: 0 for b in order if problem.size[b]}
    rank = {b: place for place, b in enumerate(order)}
    while lows:
        chosen = min(lows, key=lambda b: (lows[b], rank[b]))
        offsets[chosen] = lows.pop(chosen)
        top = int(offsets[chosen] + problem.size[chosen])
        for b in lows:
            meets = problem.start[b] < problem.end[chosen] and problem.start[chosen] < problem.end[b]
            if meets and lows[b] < top:
                lows[b] = top + -top % int(problem.alignment[b])
    return offsets


def cut(count, steps, units, seed):
    """A perfect packing: the largest piece is cut in two until there are `count`."""
    random = np.random.default_rng(seed)
    pieces = [(0, steps, 0, units)]
    while len(pieces) < count:
        start, end, low, high = pieces.pop(
            max(
                range(len(pieces)),
                key=lambda i: (pieces[i][1] - pieces[i][0]) * (pieces[i][3] - pieces[i][2]),
            )
        )
        if high - low < 2 or (end - start > 1 and random.random() < (end - start) / steps):
            at = int(random.integers(start + 1, end))
            pieces += [(start, at, low, high), (at, end, low, high)]
        else:
            at = int(random.integers(low + 1, high))
            pieces += [(start, end, low, at), (start, end, at, high)]
    start, end, low, high = np.array(pieces).T
    return make_problem(start, end, high - low)


@given(problem=drawn.problems(least=1, gaps=False, fixed=False), data=st.data())
def test_the_lowest_is_placed_first_of_equals_the_earlier(problem, data):
    order = data.draw(st.permutations(range(len(problem))))
    assert place(problem, order).tolist() == by_definition(problem, order).tolist()


def test_the_same_where_hundreds_meet():
    # Ways down that are longer than what is remembered of them.
    random = np.random.default_rng(5)
    start = random.integers(0, 300, 400)
    problem = make_problem(start, start + random.integers(1, 90, 400), random.integers(1, 40, 400))
    order = random.permutation(400)
    offsets = place(problem, order)
    assert offsets.tolist() == by_definition(problem, order.tolist()).tolist()
    reference.assert_sound(problem, offsets)


def test_skyline_by_hand():
    # b first, then c beside it; a meets both and rests on the higher.
    problem = make_problem(start=[0, 0, 2], end=[4, 2, 4], size=[5, 2, 3])
    assert place(problem, [1, 2, 0]).tolist() == [3, 0, 0]
    assert place(problem, [0, 1, 2]).tolist() == [0, 5, 5]
    aligned = make_problem(start=[0, 0, 2], end=[4, 2, 4], size=[5, 2, 3], alignment=[4, 1, 1])
    assert place(aligned, [1, 2, 0]).tolist() == [4, 0, 0]


def test_a_limit_or_a_raised_flag_ends_it():
    problem = make_problem(start=[0, 0], end=[1, 1], size=[2, 3])
    assert place(problem, [0, 1], limit=5).tolist() == [0, 2]
    assert skyline.UNPLACED in place(problem, [0, 1], limit=4).tolist()
    assert place(problem, [0, 1], stop=True).tolist() == [skyline.UNPLACED] * 2


def test_what_ended_too_high_comes_earlier():
    problem = cut(600, 300, 4000, 1)
    first, again = (Skylines(make_timeline(problem), 4000) for _ in "12")
    rounds = [first.next(SolveLimits()) for _ in range(20)]
    arenas = [int((each + problem.size).max()) for each in rounds]
    assert min(arenas) < min(arenas[: len(DEFAULTS.skyline_urgencies)])
    for each in rounds:
        reference.assert_sound(problem, each)
        assert each.tolist() == again.next(SolveLimits()).tolist()
    limits = SolveLimits()
    limits.cancel()
    assert first.next(limits) is None


def test_fullness_by_hand():
    problem = make_problem(start=[0, 1], end=[2, 3], size=[2, 4])
    assert fullness(make_timeline(problem)) == pytest.approx((2 + 6 + 4) / 3 / 6)
    assert fullness(make_timeline(make_problem([], [], []))) == 0


def test_full_problems_are_packed_closer_than_by_every_order_and_fit():
    problem = cut(1500, 1000, 4000, 2)
    timeline = make_timeline(problem)
    search = LocalSearch(timeline, SolveLimits(seed=3), 4000, iterations=3000)
    search.consider(place_by(timeline, STARTS[0][0](timeline), STARTS[0][1], SolveLimits()), "start")
    assert search.lower_what_is_wide()
    assert SKYLINE in search.best.found_by
    least = min(
        int((place_by(timeline, order(timeline), fit, SolveLimits()) + problem.size).max())
        for order, fit in STARTS + OTHERS
    )
    assert search.arena - 4000 < 0.7 * (least - 4000)
    other = LocalSearch(timeline, SolveLimits(seed=3), 4000, iterations=3000)
    other.consider(place_by(timeline, STARTS[0][0](timeline), STARTS[0][1], SolveLimits()), "start")
    other.lower_what_is_wide()
    assert other.best.offsets.tolist() == search.best.offsets.tolist()


def test_only_full_plain_problems_begin_with_skylines(monkeypatch):
    calls = []
    real = Skylines.next
    monkeypatch.setattr(Skylines, "next", lambda self, limits: calls.append(1) or real(self, limits))
    full = cut(300, 100, 4000, 3)
    Search(iterations=1).place(full, SolveLimits())
    assert calls
    calls.clear()
    gaps = {0: (Gap(int(full.start[0]), int(full.start[0]) + 1),)}
    Search(iterations=1).place(make_problem(full.start, full.end, full.size, gaps=gaps), SolveLimits())
    random = np.random.default_rng(0)
    start = random.integers(0, 3000, 300)
    Search(iterations=1).place(make_problem(start, start + 20, random.integers(1, 999, 300)), SolveLimits())
    assert not calls


def test_auto_begins_with_them_where_a_part_is_large_and_repair_goes_on_from_the_best(monkeypatch):
    problem = cut(1200, 1000, 4000, 4)
    firsts = []
    real = LocalSearch.go_on
    monkeypatch.setattr(
        LocalSearch,
        "go_on",
        lambda self, first, limits: firsts.append((self, first)) or real(self, first, limits),
    )
    monkeypatch.setattr("memplan_engine.strategies.auto.ALONE_SECONDS", 0.1)
    monkeypatch.setattr("memplan_engine.strategies.auto.FIRST_SLICE", 0.2)
    limits = SolveLimits(nodes=10_000)
    with limits.running():
        placement = Auto().place(problem, limits)
    arena = placement.arena_bytes(problem)
    assert 4000 <= arena < 1.35 * 4000
    assert len({id(search) for search, _ in firsts}) == 1
    assert all(first.arena_bytes(problem) >= arena for _, first in firsts)
    assert lower_bound(problem).nbytes == 4000
    assert local_search.SKYLINE == SKYLINE
