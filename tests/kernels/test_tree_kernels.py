"""The tree kernel, for many buffers, gives the offsets of the definition and of the kernel for fewer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.kernels.constructive.gap_tree import effort, tree_place
from memplan_engine.kernels.constructive.gap_tree.block_fit import MOST_SHORT
from memplan_engine.kernels.constructive.gap_tree.gap_lists import (
    MOST_WAITING,
    gaps_of,
    make_gap_lists,
    settle,
    take_out,
)
from memplan_engine.kernels.constructive.gap_tree.size_codes import (
    CHUNK,
    LARGEST,
    NOTHING,
    next_code,
    size_code,
)
from memplan_engine.kernels.constructive.gap_tree.time_tree import CELLS
from memplan_engine.problem import FREE, Gap, Problem, make_problem
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.order_fit import place_by
from memplan_engine.strategies.constructive.orders import FitRule, make_timeline
from tests.support import drawn, reference

END = 2**63 - 1


def placed(problem: Problem, order, fit: FitRule, cell: int, **options) -> list[int] | None:
    timeline = replace(make_timeline(problem), cell=cell)
    offsets = place_by(timeline, np.array(order, dtype=np.int64), fit, SolveLimits(), **options)
    return None if offsets is None else offsets.tolist()


@given(
    problem=drawn.problems(steps=60),
    fit=st.sampled_from(list(FitRule)),
    cell=st.integers(1, 4),
    data=st.data(),
)
def test_placing_follows_the_definition_in_any_order(problem, fit, cell, data):
    order = data.draw(st.permutations(range(len(problem))))
    assert placed(problem, order, fit, cell) == reference.place(problem, order, fit.value)


def mixed(seed: int, unit: int, alignment: int, odd: bool) -> Problem:
    """700 buffers over 600 steps, three in ten of any length; with `odd` some have windows, fixed offsets,
    alignments of their own or no bytes at all."""
    random = np.random.default_rng(seed)
    n, steps = 700, 600
    start = random.integers(0, steps, n)
    length = np.where(random.random(n) < 0.3, random.integers(1, steps, n), random.integers(1, 12, n))
    size = unit * random.integers(1, 200, n)
    if not odd:
        return make_problem(start, start + length, size, alignment=alignment)
    size[random.random(n) < 0.02] = 0
    units = random.choice([1, 2, 24, 64], n)
    gaps = {
        int(b): (Gap(int(start[b]) + 1, int(start[b]) + 2, 1, int(size[b]) // 2 + 1),)
        for b in np.flatnonzero((length > 3) & (size > 4))[::15]
    }
    free = make_problem(start, start + length, size, alignment=units, gaps=gaps)
    before = np.array(placed(free, random.permutation(n), FitRule.FIRST, effort.RUNS))
    fixed = np.where(random.random(n) < 0.1, before, FREE)
    return make_problem(start, start + length, size, alignment=units, gaps=gaps, fixed=fixed)


@pytest.mark.parametrize("fit", list(FitRule))
@pytest.mark.parametrize(
    ("unit", "alignment", "odd"), [(64, 64, False), (1, 64, False), (1, 3, False), (1, 1, True)]
)
def test_hundreds_of_buffers_lie_as_the_other_kernel_lays_them(fit, unit, alignment, odd):
    problem = mixed(7, unit, alignment, odd)
    order = np.random.default_rng(8).permutation(len(problem))
    expected = placed(problem, order, fit, effort.RUNS)
    for cell in (1, 3, 16, 40):
        assert placed(problem, order, fit, cell) == expected


def test_the_tree_serves_greedy_by_size_where_many_live_long():
    random = np.random.default_rng(9)
    n = 6000
    start = np.arange(n)
    length = np.where(random.random(n) < 0.5, random.integers(1, n, n), random.geometric(1 / 8, n))
    problem = make_problem(start, np.minimum(start + length, n), random.integers(1, 10**6, n), alignment=64)
    timeline = make_timeline(problem)
    assert timeline.cell != effort.RUNS
    order = np.lexsort((problem.start, -problem.size))
    for fit in (FitRule.FIRST, FitRule.BEST):
        by_runs = place_by(replace(timeline, cell=effort.RUNS), order, fit, SolveLimits())
        assert place_by(timeline, order, fit, SolveLimits()).tolist() == by_runs.tolist()


def test_few_buffers_and_short_ones_stay_with_the_runs():
    start = np.arange(50_000)
    assert make_timeline(make_problem(start, start + 5, start + 1)).cell == effort.RUNS
    assert make_timeline(make_problem([0] * 500, [9] * 500, [5] * 500)).cell == effort.RUNS
    assert make_timeline(make_problem([], [], [])).cell == effort.RUNS


def test_many_short_buffers_of_one_block_take_the_way_of_the_long_ones():
    # More than MOST_SHORT of them at each step of one block of 16 cells; the last is live all the time.
    n = MOST_SHORT + 40
    start = np.concatenate([np.arange(n) % CELLS, [0]])
    problem = make_problem(start, [*(start[:n] + 1), CELLS], [*range(1, n + 1), 5], steps=CELLS)
    expected = placed(problem, range(n + 1), FitRule.BEST, effort.RUNS)
    assert placed(problem, range(n + 1), FitRule.BEST, 1) == expected
    # By hand: the column with the last buffer of them all is the sum of every 16th size.
    assert expected[n] == max(sum(range(first, n + 1, CELLS)) for first in range(1, CELLS + 1))


def test_a_buffer_of_no_bytes_lies_where_two_others_touch():
    problem = make_problem([0, 0, 0], [9, 9, 9], [4, 6, 0], fixed=[3, 7, FREE])
    # Best fit: the hole of 0 bytes at 7 is the tightest; first fit: the bottom; top: above all.
    for fit, offset in ((FitRule.BEST, 7), (FitRule.FIRST, 0), (FitRule.TOP, 13)):
        assert placed(problem, [0, 1, 2], fit, 2) == [3, 7, offset]


@pytest.mark.parametrize(("limit", "expected"), [(8, [0, 5]), (7, None)])
def test_placing_is_given_up_when_the_arena_would_pass_the_limit(limit, expected):
    problem = make_problem([0, 0], [1, 1], [5, 3])
    assert placed(problem, [0, 1], FitRule.BEST, 1, limit=limit) == expected


class RaisedAfter:
    """A flag that is raised after some looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __getitem__(self, index: int) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_the_flag_is_looked_at_before_each_buffer(monkeypatch):
    monkeypatch.setattr(tree_place, "place_in_tree", tree_place.place_in_tree.interpreted)
    problem = make_problem([0, 0, 1, 2], [3, 2, 4, 5], [4, 2, 3, 1])
    timeline, order = replace(make_timeline(problem), cell=1), np.arange(4)
    expected = placed(problem, order, FitRule.BEST, 1)
    for looks in range(4):
        limits = SolveLimits(stop=RaisedAfter(looks))
        assert place_by(timeline, order, FitRule.BEST, limits) is None
    limits = SolveLimits(stop=RaisedAfter(4))
    assert place_by(timeline, order, FitRule.BEST, limits).tolist() == expected


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=40)


@given(RANGES, RANGES)
def test_what_is_taken_out_of_a_list_of_gaps(first, second):
    lists, pool = make_gap_lists(2)
    taken: set[int] = set()
    for ranges in (first, second):
        for low, length in ranges:
            pool = take_out(lists, pool, 1, low, low + length)
            taken |= set(range(low, low + length))
        if ranges:
            pool = settle(lists, pool, 1)
    gaps = gaps_of(lists, pool, 1)
    assert gaps[1, -1] == END
    assert (gaps[0] < gaps[1]).all()
    assert (gaps[1, :-1] < gaps[0, 1:]).all()
    assert [byte for low, high in gaps.T for byte in range(low, min(high, 80))] == sorted(
        set(range(80)) - taken
    )
    assert gaps_of(lists, pool, 0).tolist() == [[0], [END]]


def test_a_list_settles_by_itself_when_enough_waits():
    lists, pool = make_gap_lists(1)
    for i in range(MOST_WAITING):
        pool = take_out(lists, pool, 0, 3 * i, 3 * i + 1)
    assert gaps_of(lists, pool, 0).shape[1] == 1
    pool = take_out(lists, pool, 0, 10**6, 10**6 + 1)
    assert gaps_of(lists, pool, 0).shape[1] == MOST_WAITING
    assert lists.waiting[0] == 1


def test_a_larger_size_never_has_a_smaller_code():
    sizes = np.unique([*range(1, 3000), *(2**k + d for k in range(12, 62) for d in (-1, 0, 1)), END])
    codes = np.array([size_code(int(size)) for size in sizes], dtype=np.int64)
    assert (np.diff(codes) >= 0).all()
    # Ten bits of fraction: exact below 2,048 bytes, and within a thousandth above.
    assert (np.diff(codes[sizes < 2048]) > 0).all()
    assert size_code(2048) == size_code(2049) < size_code(2050)
    assert codes[0] > NOTHING
    assert codes[-1] < LARGEST


@given(st.lists(st.integers(0, 64513), max_size=3 * CHUNK), st.integers(1, 65534))
def test_the_next_code(codes, floor):
    nearest = np.empty(-(-len(codes) // CHUNK), dtype=np.uint16)
    found = next_code(np.array(codes, dtype=np.uint16), np.uint16(floor), nearest)
    assert found == min([code for code in codes if code >= floor], default=LARGEST)
    for chunk, ours in enumerate(nearest.tolist()):
        least = min([c for c in codes[chunk * CHUNK : (chunk + 1) * CHUNK] if c >= floor], default=None)
        assert least is None or ours == least - floor


@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_sizes_that_share_a_code_are_told_apart(alignment):
    # A thousandth of 2**20 is 1,024: holes a few bytes apart have one code, and some of them are too small.
    random = np.random.default_rng(11)
    n, steps = 900, 500
    start = random.integers(0, steps, n)
    length = np.where(random.random(n) < 0.4, random.integers(1, steps, n), random.integers(1, 9, n))
    size = random.choice([2**20, 2**20 + 2**14, 2**18], n) + random.integers(0, 600, n)
    problem = make_problem(start, start + length, size, alignment=alignment)
    order = random.permutation(n)
    expected = placed(problem, order, FitRule.BEST, effort.RUNS)
    for cell in (1, 8, 30):
        assert placed(problem, order, FitRule.BEST, cell) == expected
