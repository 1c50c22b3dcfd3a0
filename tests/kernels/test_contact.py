"""Contact fit: the kernel against its definition, the order of urgency by hand, what search gains by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.search import contact
from memplan_engine.kernels.search.radix import make_sorter
from memplan_engine.kernels.search.time_index import make_time_index
from memplan_engine.planner import make_plan
from memplan_engine.problem import Gap, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import OTHERS, STARTS, place_by
from memplan_engine.strategies.constructive.orders import make_timeline
from memplan_engine.strategies.search import local_search
from memplan_engine.strategies.search.local_search import CONTACT, LocalSearch, Search
from memplan_engine.strategies.search.urgency_fit import placements, urgency
from tests.support import drawn, reference, tight


def place(problem, order, ceiling, stop=False):
    timeline, n = make_timeline(problem), len(problem)
    start, end, size, alignment = (
        np.array(column)
        for column in (timeline.sections.first, timeline.sections.last, problem.size, problem.alignment)
    )
    times = make_time_index(np.arange(n + 1), start, end, np.zeros_like(size), size, len(timeline.sections))
    return contact.place_by_contact(
        np.array(order, dtype=np.int64),
        start,
        end,
        size,
        alignment,
        times,
        ceiling,
        np.array([stop]),
        np.empty(n + 1, dtype=np.int64),
        make_sorter(n + 1),
        contact.ContactParams(),
    )


def mixture(n, seed):
    """Sizes and lifetimes of every order of magnitude, log-uniform."""
    random = np.random.default_rng(seed)
    start = random.integers(0, n, n)
    length = np.exp(random.uniform(0, np.log(n), n)).astype(np.int64)
    return make_problem(
        start, np.minimum(start + length, n), 64 * np.exp2(random.uniform(0, 16, n)).astype(int)
    )


def long_and_short(n, seed):
    """One buffer made at each step; most live 8 steps or so, a tenth anywhere up to the end."""
    random = np.random.default_rng(seed)
    start, length = np.arange(n), random.geometric(1 / 8, n)
    kept = random.random(n) < 0.1
    length[kept] = random.integers(1, n, n)[kept]
    size = 64 * np.exp2(random.uniform(0, 16, n)).astype(np.int64)
    return make_problem(start, np.minimum(start + length, n), size)


def choices(problem, sections, buffer, offsets, placed, ceiling):
    """{offset: contact}: the bottom and the top of every hole below `ceiling` with room for `buffer`."""
    begin, finish, size = sections.first[buffer], sections.last[buffer], int(problem.size[buffer])
    unit = int(problem.alignment[buffer])
    met = [
        (
            offsets[b],
            offsets[b] + problem.size[b],
            min(finish, sections.last[b]) - max(begin, sections.first[b]),
        )
        for b in placed
        if problem.size[b] and sections.first[b] < finish and begin < sections.last[b]
    ]
    taken = {byte for low, high, _ in met for byte in range(low, high)}
    free = [byte for byte in range(ceiling) if byte not in taken]
    scores = {}
    for low in free:
        if low - 1 in free:
            continue
        high = next(byte for byte in range(low, ceiling + 1) if byte not in free)
        below = 1.0 if low == 0 else sum(life for _, top, life in met if top == low) / (finish - begin)
        above = contact.ContactParams().ceiling
        if high < ceiling:
            above = sum(life for bottom, _, life in met if bottom == high) / (finish - begin)
        for offset in (low + -low % unit, (high - size) - (high - size) % unit):
            if low <= offset and offset + size <= high:
                score = below * (offset == low) + above * (offset + size == high)
                scores[offset] = score + contact.ContactParams().tightness * size / (high - low)
    return scores, met


@given(problem=drawn.problems(least=1, gaps=False, fixed=False), share=st.floats(0.3, 1.2), data=st.data())
def test_each_buffer_goes_where_it_touches_most_or_lowest_above(problem, share, data):
    order = data.draw(st.permutations(range(len(problem))))
    ceiling = int(lower_bound(problem).nbytes * share)
    offsets, sections = place(problem, order, ceiling), make_timeline(problem).sections
    for i, buffer in enumerate(order):
        size, unit = int(problem.size[buffer]), int(problem.alignment[buffer])
        if size == 0:
            continue
        scores, met = choices(problem, sections, buffer, offsets, order[:i], ceiling)
        if scores:
            assert scores[offsets[buffer]] >= max(scores.values()) - 1e-9
        else:
            tries = sorted({0} | {int(high + -high % unit) for _, high, _ in met})
            assert offsets[buffer] == next(
                t
                for t in tries
                if t + size > ceiling and all(t + size <= low or high <= t for low, high, _ in met)
            )


def test_contact_by_hand():
    # c would touch y in one of its eight sections: that is worth less than the ceiling, and a lower ceiling
    # where it touches both is worth more than either. The last three only cut time.
    problem = make_problem(start=[0, 0, 0, 2, 4, 6], end=[8, 1, 8, 3, 5, 7], size=[2, 1, 2, 1, 1, 1])
    assert place(problem, [0, 1, 2], 100).tolist()[:3] == [0, 2, 98]
    assert place(problem, [0, 2], 100).tolist()[2] == 2
    assert place(problem, [0, 1, 2], 5).tolist()[2] == 3
    # No room below the ceiling: the lowest offset above.
    assert place(problem, [0, 1, 2], 3).tolist()[2] == 3


def test_a_raised_flag_ends_it():
    problem = make_problem(start=[0, 0], end=[1, 1], size=[1, 1])
    assert place(problem, [0, 1], 2, stop=True).tolist() == [contact.UNPLACED] * 2
    limits = SolveLimits()
    limits.cancel()
    assert list(placements(make_timeline(problem), 2, limits)) == []


def test_urgency_by_hand():
    problem = make_problem(start=[0, 3, 4, 5, 0], end=[4, 9, 6, 8, 10], size=[3, 5, 1, 1, 1])
    ranks = urgency(make_timeline(problem))
    # Step 3 holds 9 bytes, step 5 holds 8.
    assert ranks.busiest.tolist() == [9, 9, 8, 8, 9]
    assert ranks.order(problem.size).tolist()[0] == 4
    assert sorted(ranks.order(problem.size).tolist()[1:3]) == [0, 1]


def test_what_ended_above_comes_earlier_in_the_next_round():
    problem = mixture(400, 10)
    bound = lower_bound(problem).nbytes
    rounds = list(placements(make_timeline(problem), bound, SolveLimits()))
    outside = [int(problem.size[each + problem.size > bound].sum()) for each in rounds]
    for each in rounds:
        reference.assert_sound(problem, each)
    assert outside[:-1] == sorted(outside[:-1], reverse=True)
    again = list(placements(make_timeline(problem), bound, SolveLimits()))
    assert [each.tolist() for each in again] == [each.tolist() for each in rounds]


def test_contact_fit_packs_long_and_short_lifetimes_closer_than_every_order_and_fit():
    problem = long_and_short(4000, 0)
    timeline = make_timeline(problem)
    search = LocalSearch(timeline, SolveLimits(), lower_bound(problem).nbytes, iterations=0)
    search.repair_by_contact()
    assert search.best.found_by == CONTACT
    assert search.arena == search.bound
    for order, fit in STARTS + OTHERS:
        offsets = place_by(timeline, order(timeline), fit, SolveLimits())
        assert int((offsets + problem.size).max()) > search.bound


def test_search_tries_it_only_where_nothing_is_fixed_and_no_gap_is(monkeypatch):
    calls = []
    monkeypatch.setattr(local_search, "placements", lambda timeline, *_: calls.append(timeline) or iter(()))
    start, end, size = tight.NO_WAY_OUT.T
    make_plan(make_problem(start, end, size), Search(iterations=1))
    assert len(calls) == 1
    make_plan(make_problem(start, end, size, gaps={6: [Gap(2, 3)]}), Search(iterations=1))
    assert len(calls) == 1
