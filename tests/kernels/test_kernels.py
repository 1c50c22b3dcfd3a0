"""Each kernel against plain Python that follows the definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from memplan_engine import kernels
from memplan_engine.kernels.constructive.breadth import busiest_section
from memplan_engine.kernels.constructive.place import place_in_order
from memplan_engine.kernels.constructive.placed import cell_width
from memplan_engine.kernels.constructive.stack import stack_up
from memplan_engine.kernels.plotting.paint import cover_max
from memplan_engine.kernels.verify.sweep import NOBODY, find_collisions
from memplan_engine.problem import FREE, Gap, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import place_by
from memplan_engine.strategies.constructive.orders import FitRule, make_timeline
from tests.support import drawn, reference

FITS = st.sampled_from(list(FitRule))


@given(problem=drawn.problems(), fit=FITS, data=st.data())
def test_placing_follows_the_definition_in_any_order(problem, fit, data):
    order = data.draw(st.permutations(range(len(problem))))
    offsets = place_by(make_timeline(problem), np.array(order, dtype=np.int64), fit, SolveLimits())
    assert offsets.tolist() == reference.place(problem, order, fit.value)


@given(problem=drawn.problems(least=1, most=30, steps=40), fit=FITS, data=st.data())
def test_the_width_of_the_cells_changes_nothing(problem, fit, data):
    order = np.array(data.draw(st.permutations(range(len(problem)))), dtype=np.int64)
    timeline = make_timeline(problem)
    offsets = [
        place_by(replace(timeline, width=width), order, fit, SolveLimits()).tolist()
        for width in (1, 2, 5, 16, 64)
    ]
    assert offsets == offsets[:1] * 5


def test_many_placed_buffers_take_the_quicksort_and_the_merge():
    random = np.random.default_rng(5)
    n = 250
    start = random.integers(0, 60, n)
    length = np.where(random.random(n) < 0.2, random.integers(1, 60, n), random.integers(1, 9, n))
    problem = make_problem(start, start + length, random.integers(1, 1000, n), alignment=8)
    order = random.permutation(n)
    timeline = make_timeline(problem)
    for fit in FitRule:
        expected = reference.place(problem, order.tolist(), fit.value)
        for width in (1, 6, 120):
            assert place_by(replace(timeline, width=width), order, fit, SolveLimits()).tolist() == expected


@pytest.mark.parametrize("fit", list(FitRule))
def test_thousands_of_buffers_lie_the_same_whatever_counts_as_long(fit):
    # With the largest width all are short and there is no run at all; with 1 nearly all stand in one.
    random = np.random.default_rng(6)
    n = 3000
    start = random.integers(0, 500, n)
    length = np.where(random.random(n) < 0.1, random.integers(1, 500, n), random.integers(1, 12, n))
    gaps = {b: (Gap(int(start[b]), int(start[b]) + 1, 0, 3),) for b in range(0, n, 50) if length[b] > 1}
    problem = make_problem(start, start + length, random.integers(4, 1000, n), gaps=gaps)
    order, timeline = random.permutation(n), make_timeline(problem)
    expected = place_by(replace(timeline, width=10**6), order, fit, SolveLimits()).tolist()
    for width in (1, 6, 12, 100):
        assert place_by(replace(timeline, width=width), order, fit, SolveLimits()).tolist() == expected


#   14 ┌────┐            By hand: 0 lies at [0, 4), 1 at [4, 6), 2 at [6, 14), all at fixed offsets, but 1 is
#      │ 2  │            gone at step 1. So at step 1 the hole [4, 6) is free, and from 14 upwards.
#    6 ├────┤
#    4 ├─1──┤ hole
#      │ 0  │ 0
@pytest.mark.parametrize(
    ("size", "alignment", "fit", "offset"),
    [
        (2, 1, FitRule.FIRST, 4),
        (2, 1, FitRule.BEST, 4),
        (2, 1, FitRule.TOP, 14),
        (3, 1, FitRule.FIRST, 14),
        (1, 5, FitRule.FIRST, 5),
        (2, 5, FitRule.FIRST, 15),
        (0, 1, FitRule.FIRST, 0),
    ],
)
def test_one_hole_by_hand(size, alignment, fit, offset):
    problem = make_problem(
        [0, 0, 0, 1], [2, 1, 2, 2], [4, 2, 8, size], alignment=[1, 1, 1, alignment], fixed=[0, 4, 6, FREE]
    )
    assert place_by(make_timeline(problem), np.arange(4), fit, SolveLimits()).tolist() == [0, 4, 6, offset]


def test_best_fit_takes_the_tightest_hole_and_the_lowest_of_equals():
    # Fixed at [10, 20), [25, 30), [35, 40): holes of 10, 5 and 5 bytes.
    fixed = [10, 25, 35, FREE, FREE]
    problem = make_problem([0] * 5, [1] * 5, [10, 5, 5, 4, 5], fixed=fixed)
    place = lambda fit: place_by(make_timeline(problem), np.arange(5), fit, SolveLimits()).tolist()  # noqa: E731
    assert place(FitRule.BEST) == [10, 25, 35, 20, 30]
    assert place(FitRule.FIRST) == [10, 25, 35, 0, 4]


def test_a_window_lets_a_buffer_reach_over_its_neighbour():
    # At step 1 buffer 1 needs only its bytes [6, 8); 0 has the bytes [0, 6) fixed: 1 may start at 0.
    gaps = {1: (Gap(1, 2, 6, 8),)}
    problem = make_problem([1, 0], [2, 3], [6, 8], fixed=[0, FREE], gaps=gaps)
    for fit in FitRule:
        assert place_by(make_timeline(problem), np.arange(2), fit, SolveLimits()).tolist() == [0, 0]


def test_a_buffer_of_many_pieces_that_meets_many_long_neighbours():
    # 21 pieces × 20 neighbours: each neighbour is met 21 times.
    gaps = {20: tuple(Gap(4 * i + 1, 4 * i + 3, 0, 1) for i in range(10))}
    problem = make_problem([0] * 21, [50] * 21, [10] * 20 + [5], gaps=gaps)
    assert place_by(make_timeline(problem), np.arange(21), FitRule.BEST, SolveLimits()).tolist() == [
        *range(0, 201, 10)
    ]


def test_a_buffer_that_is_all_gap_lies_at_the_bottom_and_takes_nothing():
    problem = make_problem([0, 0], [3, 3], [4, 9], gaps={1: (Gap(0, 3),)}, steps=5)
    for order in ([0, 1], [1, 0]):
        assert place_by(make_timeline(problem), np.array(order), FitRule.FIRST, SolveLimits()).tolist() == [
            0,
            0,
        ]


def test_huge_sizes_and_times_are_exact():
    size, time = 2**60 + 1, 10**18
    problem = make_problem([0, 0, time], [time, 5, 2 * time], [size] * 3, alignment=2**40)
    offsets = place_by(make_timeline(problem), np.arange(3), FitRule.FIRST, SolveLimits())
    assert offsets.tolist() == [0, 2**60 + 2**40, 0]


@pytest.mark.parametrize(("limit", "placed"), [(7, False), (8, True)])
def test_placing_is_given_up_when_the_arena_would_pass_the_limit(limit, placed):
    problem = make_problem([0, 0], [1, 1], [5, 3])
    offsets = place_by(make_timeline(problem), np.arange(2), FitRule.FIRST, SolveLimits(), limit=limit)
    assert (offsets is not None) == placed


def test_placing_is_given_up_when_the_flag_is_raised():
    limits = SolveLimits()
    limits.cancel()
    assert place_by(make_timeline(make_problem([0], [1], [1])), np.arange(1), FitRule.FIRST, limits) is None


INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 50)).map(
        lambda drawn: (drawn[0], min(drawn[0] + drawn[1], 31), drawn[2])
    ),
    max_size=25,
)


def _columns(rows, count):
    return (np.array([row[i] for row in rows], dtype=np.int64) for i in range(count))


@given(INTERVALS)
def test_cover_max_is_the_largest_value_over_each_section(rows):
    first, last, value = _columns(rows, 3)
    expected = [max((v for a, b, v in rows if a <= s < b), default=0) for s in range(31)]
    assert cover_max(first, last, value, 31).tolist() == expected


@given(INTERVALS, st.lists(st.integers(0, 4), min_size=31, max_size=31))
def test_busiest_section_is_the_earliest_with_the_most(rows, live):
    first, last, _ = _columns(rows, 3)
    expected = [max(range(a, b), key=lambda s: (live[s], -s)) for a, b, _ in rows]
    assert busiest_section(first, last, np.array(live)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=20), st.integers(0, 50))
def test_stack_up_leaves_only_what_alignment_asks_for(rows, base):
    size, alignment = _columns(rows, 2)
    expected, top = [], base
    for nbytes, unit in rows:
        expected.append(next(offset for offset in range(top, top + unit) if offset % unit == 0))
        top = expected[-1] + nbytes
    assert stack_up(size, alignment, base).tolist() == expected


RECTANGLES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 12), st.integers(1, 5)), max_size=20
)


@given(RECTANGLES)
def test_find_collisions_sees_every_rectangle_that_overlaps_an_earlier_one(rows):
    start, length, low, height = _columns(rows, 4)
    end, high = start + length, low + height
    n = len(rows)
    events = sorted([(e, 0, -i - 1) for i, e in enumerate(end)] + [(s, 1, i) for i, s in enumerate(start)])
    found = find_collisions(np.array([event for *_, event in events], dtype=np.int64), low, high, 17)
    live: list[int] = []
    overlapping = {i: set() for i in range(n)}
    for _, begins, event in events:
        if begins:
            overlapping[event] = {i for i in live if low[i] < high[event] and low[event] < high[i]}
            live += [] if overlapping[event] else [event]
        elif -event - 1 in live:
            live.remove(-event - 1)
    for i in range(n):
        assert (found[i] in overlapping[i]) if overlapping[i] else (found[i] == NOBODY)


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(0, 40))
def test_the_cell_width_is_a_number_of_sections_from_1_on(lengths, sections):
    last = np.minimum(np.array(lengths, dtype=np.int64), max(1, sections))
    assert 1 <= cell_width(np.zeros_like(last), last, sections) <= max(1, 2 * sections)


def planning_signatures():
    """Without those that note a trace for a replay."""
    return [each for each in place_in_order.compiled.signatures if not isinstance(each[-1], types.BaseTuple)]


def test_the_kernel_is_compiled_for_one_kind_of_arrays_only():
    read_only = make_problem([0, 1], [2, 3], [4, 4])
    prepare_and_place = lambda order: place_by(make_timeline(read_only), order, FitRule.BEST, SolveLimits())  # noqa: E731
    prepare_and_place(np.arange(2))
    before = planning_signatures()
    frozen = np.arange(2)
    frozen.flags.writeable = False
    prepare_and_place(frozen)
    prepare_and_place(np.arange(4)[::2] // 2)
    assert planning_signatures() == before
    assert len(before) == 1


def test_what_is_compiled_is_kept_until_its_source_or_that_of_a_callee_changes():
    sources = kernels._find_sources()
    before = kernels._digests(sources)
    place = f"{kernels.__name__}.constructive.place"
    placed = f"{kernels.__name__}.constructive.placed"
    assert f"from {placed} import" in sources[place]
    assert {each.name for each in kernels.cache_folders(place)} == {f"place-{before[place]}"}
    after = kernels._digests(sources | {placed: sources[placed] + "\n"})
    changed = {name for name in before if before[name] != after[name]}
    assert {place, placed} <= changed
    assert f"{kernels.__name__}.search.repair" in before.keys() - changed
    assert len({Path(module.replace(".", "/")).name for module in before}) == len(before)
    assert list(before).index(placed) < list(before).index(place)
