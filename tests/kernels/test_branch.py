"""The search of one part: every capacity, every rule, with what is refuted kept, against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import perfect
from memplan_engine.bounds import lower_bound
from memplan_engine.kernels.exact import branch, branch_state
from memplan_engine.problem import FREE, Gap, make_problem, select
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.exact.independent_parts import (
    BRANCHING_RULES,
    LARGE_TABLE,
    MOST_RAISES,
    MOST_TABLES,
    SMALL_TABLE,
    Outcome,
    PartSearch,
    independent,
    make_columns,
)
from tests.support import drawn, reference, tight

TURNS = len(BRANCHING_RULES) * len(MOST_RAISES)
ENOUGH_NODES = 200_000


def part_search(problem, seed=0):
    return PartSearch(problem, np.arange(len(problem)), problem, seed)


def least(part, optimum):
    """A byte below the bound, but no less than where a buffer alone ends."""
    ends = np.maximum(part.fixed, 0) + part.size
    return max(int(ends.max()), min(lower_bound(part).nbytes, optimum) - 1)


def check_part(part, random, most):
    """Up to `most` attempts, capacities and rules in any order; gives how often it was refuted at a capacity
    that the bound does not exclude."""
    optimum = reference.least_arena(part)
    assert lower_bound(part).nbytes <= optimum
    search = part_search(part)
    tasks = list(product(range(least(part, optimum), optimum + 2), range(TURNS)))
    random.shuffle(tasks)
    searched = 0
    for capacity, turn in tasks[:most]:
        outcome, offsets = search.attempt(capacity, turn, SolveLimits(), ENOUGH_NODES)
        if search.exact:
            assert outcome is (Outcome.FITS if capacity >= optimum else Outcome.DOES_NOT_FIT)
        elif outcome is not Outcome.UNDECIDED:
            assert (outcome is Outcome.FITS) == (capacity >= optimum)
        assert (offsets is not None) == (outcome is Outcome.FITS)
        if offsets is not None:
            reference.assert_sound(part, offsets.tolist())
            assert reference.arena(part, offsets) <= capacity
        searched += outcome is Outcome.DOES_NOT_FIT and capacity >= lower_bound(part).nbytes
    return searched


@pytest.mark.parametrize("kind", tight.KINDS, ids=lambda kind: kind.__name__)
def test_a_part_fits_exactly_from_its_optimum_on(kind):
    random = np.random.default_rng(1)
    parts = [
        select(problem, rows)
        for problem in tight.many(kind, 30)
        for rows in independent(problem)
        if len(rows) >= 3
    ]
    searched = sum(check_part(part, random, 80) for part in parts)
    if kind in (tight.no_way_out, tight.aligned, tight.fixed):
        assert searched > 20


@pytest.mark.parametrize("seed", range(10))
def test_a_crowd_of_some_fifteen_buffers(seed):
    random = np.random.default_rng(seed)
    for problem in tight.many(lambda r: tight.crowded(r, 15, 10, 4), 6, seed):
        check_part(problem, random, 40)


@pytest.mark.parametrize("make", [perfect.guillotine, perfect.pinwheel])
def test_no_attempt_refutes_a_perfect_packing(make):
    """Full at every step, so that each wrong step costs the optimum, and much is refuted on the way."""
    random = np.random.default_rng(5)
    nodes = 0
    for seed in range(40):
        count, steps, units = (int(random.integers(*ends)) for ends in ((20, 45), (20, 40), (10, 30)))
        made = make(count, seed, steps=steps, units=units)
        for rows in independent(made.problem):
            search, limits = part_search(select(made.problem, rows)), SolveLimits()
            for turn in random.permutation(TURNS)[:20].tolist():
                outcome, _ = search.attempt(made.optimum, turn, limits, 2_000)
                assert outcome is not Outcome.DOES_NOT_FIT
            nodes += int(limits.counter[0])
    assert nodes > 20_000


@given(
    problem=drawn.problems(least=1, most=8, steps=5, largest=6, alignments=st.sampled_from([1, 1, 2, 3])),
    seed=st.integers(0, 99),
)
def test_whatever_a_part_has(problem, seed):
    random = np.random.default_rng(seed)
    for rows in independent(problem):
        check_part(select(problem, rows), random, 20)


def test_the_two_brute_forces_agree():
    """Offset by offset and step by step, they share little."""
    for kind in tight.KINDS:
        for problem in tight.many(kind, 60):
            if len(problem) <= 5:
                assert reference.least_arena(problem) == reference.optimum(problem)


@given(problem=drawn.problems(most=5, steps=4, largest=6, alignments=st.sampled_from([1, 1, 2, 3, 4])))
def test_the_two_brute_forces_agree_on_whatever_a_problem_has(problem):
    assert reference.least_arena(problem) == reference.optimum(problem)


def test_sizes_rounded_up_to_the_alignment_do_not_all_end_at_the_capacity():
    """1 byte at 128 ends at 129; with 2 bytes up there it would be 130."""
    search = part_search(make_problem([0, 0, 0], [1, 1, 1], [1, 2, 2], alignment=64))
    assert not search.columns.part.plain
    for turn in range(TURNS):
        assert search.attempt(128, turn, SolveLimits())[0] is Outcome.DOES_NOT_FIT
        outcome, offsets = search.attempt(129, turn, SolveLimits())
        assert outcome is Outcome.FITS
        assert offsets[0] == 128


def test_a_lifetime_that_begins_in_a_gap_hides_no_column():
    # 0 and 2 are live together at steps 0 and 1, and nothing but the start of 1's gap lies between.
    gone = {0: (Gap(2, 3),), 1: (Gap(1, 3),)}
    problem = make_problem([0, 1, 0, 2], [3, 3, 3, 3], [6, 4, 5, 5], gaps=gone)
    columns = make_columns(problem)
    assert sorted(columns.rows.tolist()) == [0, 2, 3]
    assert len(columns.part.cap) == 2
    search = part_search(problem)
    assert search.attempt(10, 0, SolveLimits())[0] is Outcome.DOES_NOT_FIT
    assert search.attempt(11, 0, SolveLimits())[0] is Outcome.FITS


def test_columns_by_hand():
    #  buffer   steps    column
    #  0        [0, 4)   0 1     the largest sets live together: {0, 1} at steps 1–2, {0, 2, 3} at step 3
    #  1        [1, 3)   0
    #  2        [3, 5)   1
    #  3        [3, 6)   1
    problem = make_problem([0, 1, 3, 3], [4, 3, 5, 6], [8, 12, 4, 20])
    columns = make_columns(problem)
    part = columns.part
    assert (columns.unit, columns.step, columns.rows.tolist()) == (4, 4, [0, 1, 2, 3])
    assert (part.first.tolist(), part.last.tolist()) == ([0, 0, 1, 1], [2, 1, 2, 2])
    assert part.size.tolist() == [2, 3, 1, 5]
    assert np.split(part.members, part.members_of[1:-1])[1].tolist() == [0, 2, 3]
    near = [ids.tolist() for ids in np.split(part.near, part.near_of[1:-1])]
    assert near == [[1, 2, 3], [0], [0, 3], [0, 2]]
    assert part.begins.tolist() == [0, 2, 4]
    assert part.plain
    within = columns.within(33)
    assert within.latest.tolist() == [6, 5, 7, 3]
    assert within.cap.tolist() == [8, 8]


@pytest.mark.parametrize(
    ("kind", "unit", "step", "plain"),
    [
        ({"size": [4, 6]}, 2, 2, True),
        ({"size": [4, 6], "alignment": 2}, 2, 2, True),
        ({"size": [8, 16], "alignment": [4, 8]}, 8, 8, True),
        ({"size": [4, 6], "alignment": 4}, 4, 1, False),
        ({"size": [8, 12], "alignment": [8, 4]}, 4, 4, False),
        ({"size": [8, 12], "fixed": [6, FREE]}, 2, 2, False),
        ({"size": [8, 12], "gaps": {0: (Gap(0, 1),)}}, 4, 4, False),
    ],
)
def test_units_and_where_exchanges_are_allowed(kind, unit, step, plain):
    columns = make_columns(make_problem([0, 0], [2, 2], **kind))
    assert (columns.unit, columns.step, columns.part.plain) == (unit, step, plain)


def test_buffers_that_hold_nothing_at_all_leave_no_columns():
    problem = make_problem([0, 0, 0], [2, 2, 2], [6, 6, 4], gaps={b: (Gap(0, 2, 1, 4),) for b in range(3)})
    assert len(make_columns(problem, relaxed=True).rows) == 0
    assert len(make_columns(problem).rows) == 3
    check_part(problem, np.random.default_rng(0), 60)


def test_independent_parts_touch_no_step():
    problem = make_problem([4, 0, 0, 9, 6, 2], [6, 2, 4, 10, 9, 4], [1, 1, 1, 1, 0, 1])
    assert [sorted(rows.tolist()) for rows in independent(problem)] == [[1, 2, 5], [0], [3]]
    assert list(independent(make_problem([], [], []))) == []


def test_select_keeps_everything_of_a_buffer():
    problem = make_problem(
        [0, 1, 2],
        [4, 5, 6],
        [8, 12, 16],
        alignment=[4, 2, 8],
        fixed=[FREE, FREE, 24],
        gaps={2: (Gap(3, 4, 1, 2),)},
        names=list("abc"),
        steps=9,
    )
    part = select(problem, np.array([2, 0]))
    assert [part[row] for row in range(2)] == [problem[2], problem[0]]
    assert part.steps == 9


def test_what_one_attempt_refuted_the_next_does_not_look_at_again():
    problem = tight.crowded(np.random.default_rng(13), 22, 30, 9)
    load = lower_bound(problem).nbytes
    search, limits = part_search(problem), SolveLimits()
    nodes = []
    for _ in "123":
        before = int(limits.counter[0])
        assert search.attempt(load, 0, limits, ENOUGH_NODES)[0] is not Outcome.UNDECIDED
        nodes.append(int(limits.counter[0]) - before)
    outcome = search.attempt(load, 0, limits, ENOUGH_NODES)[0]
    assert outcome is part_search(problem).attempt(load, 1, limits, ENOUGH_NODES)[0]
    assert nodes[0] > 20
    if outcome is Outcome.DOES_NOT_FIT:
        assert nodes[1] == nodes[2] <= 1


def test_a_state_is_what_is_not_placed_and_how_low_it_may_lie():
    columns = make_columns(make_problem([0, 1, 3, 5], [2, 4, 6, 7], [2, 3, 4, 5]))

    def state(low, placed=(), stretch=(0, 3)):
        made = branch_state.begin.interpreted(columns.part, np.array(low))
        made.placed[list(placed)] = True
        with np.errstate(over="ignore"):
            return int(branch._hash.interpreted(columns.part, made, *stretch))

    assert len(columns.part.cap) == 3
    different = [
        state([0, 0, 0, 0]),
        state([0, 1, 0, 0]),
        state([1, 0, 0, 0]),
        state([0, 0, 0, 0], [1]),
        state([0, 0, 0, 0], [3]),
        state([0, 0, 0, 0], stretch=(1, 3)),
    ]
    assert len(set(different)) == len(different)
    # Where what is placed lies, and what another stretch holds, decides about nothing here.
    assert state([0, 0, 0, 7], [3]) == different[4]
    assert state([0, 5, 0, 0], [1]) == different[3]
    assert state([9, 0, 0, 0], stretch=(2, 3)) == state([0, 0, 0, 0], stretch=(2, 3))


def test_late_conflicts_come_first_and_each_once():
    columns = make_columns(make_problem([0, 1, 3, 5], [2, 4, 6, 7], [2, 3, 4, 5]))
    state = branch_state.begin.interpreted(columns.part, np.zeros(4, np.int64))
    conflicts = np.full(3, branch_state.NOWHERE)

    def remember(column):
        state.counts[branch_state.CONFLICT] = column
        branch._remember.interpreted(state, conflicts)
        return conflicts.tolist()

    def recall(lo, hi):
        return branch._recall.interpreted(state, conflicts, lo, hi)

    assert remember(branch_state.NOWHERE) == [-1, -1, -1]
    assert remember(2) == [2, -1, -1]
    assert remember(0) == [0, 2, -1]
    assert remember(2) == [2, 0, -1]
    assert remember(1) == [1, 2, 0]
    assert remember(3) == [3, 1, 2]
    assert state.counts[branch_state.CONFLICT] == branch_state.NOWHERE
    # Column 3 is not there, and in column 1 all is placed.
    state.unplaced[1] = 0
    assert recall(0, 3) == 2
    assert conflicts.tolist() == [3, 1, -1]
    assert recall(0, 3) == branch_state.NOWHERE


def test_conflicts_are_followed():
    """Six packings that took more than 90,000 nodes without the memory of conflicts and 36,000 with it."""
    nodes = 0
    for seed in (0, 1, 2, 3, 9, 10):
        made, limits = perfect.guillotine(200, seed), SolveLimits()
        search = part_search(made.problem)
        turns = (search.attempt(made.optimum, turn, limits)[0] for turn in range(100))
        assert Outcome.FITS in turns
        nodes += int(limits.counter[0])
    assert nodes < 60_000


def test_a_table_that_grows_keeps_what_it_knows():
    search = part_search(make_problem([0], [1], [1]))
    known = np.random.default_rng(0).integers(1, 2**63, 100).astype(np.uint64)
    small = search._table(7, False, SMALL_TABLE - 1)
    small[(known & np.uint64(SMALL_TABLE - 1)).astype(np.int64)] = known
    kept = set(small[small != 0].tolist())
    large = search._table(7, False, SMALL_TABLE)
    assert (len(small), len(large)) == (SMALL_TABLE, LARGE_TABLE)
    assert kept == {int(x) for x in known if large[int(x) & (LARGE_TABLE - 1)] == x}
    assert search._table(7, False, 1) is large
    assert not search._table(7, True, 1).any()
    assert not search._table(8, False, 1).any()


def test_only_the_tables_of_late_are_kept():
    search = part_search(make_problem([0], [1], [1]))
    search._table(0, False, 1)[0] = 5
    for capacity in range(1, MOST_TABLES):
        search._table(capacity, False, 1)
        assert search._table(0, False, 1)[0] == 5
    for capacity in range(1, MOST_TABLES + 1):
        search._table(capacity, False, 1)
    assert not search._table(0, False, 1).any()
    assert len(search._tables) == MOST_TABLES


HARD = tight.crowded(np.random.default_rng(1), 60, 60, 20)


def test_an_attempt_ends_at_its_node_limit():
    limits = SolveLimits()
    assert part_search(HARD).attempt(60, 0, limits, 50) == (Outcome.UNDECIDED, None)
    assert 50 <= limits.counter[0] <= 52


def test_an_attempt_ends_when_its_budget_is_stopped():
    limits = SolveLimits()
    limits.cancel()
    assert part_search(HARD).attempt(60, 0, limits, 10**9) == (Outcome.UNDECIDED, None)
    assert limits.counter[0] <= 1


def test_node_limits_grow_from_round_to_round_and_stay_numbers():
    search = part_search(HARD)
    limits = [search.nodes(turn) for turn in range(0, 100_000, len(BRANCHING_RULES))]
    assert limits == sorted(limits)
    assert limits[0] < limits[1] < limits[20] < 2**62
    assert limits[-1] < 2**62


def test_one_seed_searches_in_the_same_manner_every_time_and_later_rounds_in_others():
    def run():
        search, limits = part_search(HARD, seed=3), SolveLimits()
        found = [search.attempt(70, turn, limits) for turn in range(3 * len(BRANCHING_RULES))]
        placed = [None if offsets is None else offsets.tolist() for _, offsets in found]
        return placed, int(limits.counter[0])

    found, nodes = run()
    assert (found, nodes) == run()
    # After the first round every other turn goes through the rules once more.
    assert found[0] is not None
    assert found[len(BRANCHING_RULES)] is not None
    assert found[0] != found[len(BRANCHING_RULES)]


def test_the_tastes_that_came_furthest_get_most_of_every_other_turn():
    search = part_search(HARD)
    search._furthest[5], search._furthest[2] = 900, 800
    turns = [search.configuration(turn) for turn in range(201 * len(BRANCHING_RULES))]
    rules = list(range(len(BRANCHING_RULES)))
    assert [configuration.rule for configuration in turns[: len(rules)]] == rules
    assert [configuration.rule for configuration in turns[len(rules) :: 2]] == rules * 100
    favoured = np.bincount([configuration.rule for configuration in turns[len(rules) + 1 :: 2]]) / (
        100 * len(rules)
    )
    assert abs(favoured[5] - 0.4) < 0.05
    assert abs(favoured[2] - 0.24) < 0.05
    assert favoured.min() > 0
    seen = [configuration for configuration in turns if configuration.rule == 5]
    assert [configuration.again for configuration in seen] == list(range(len(seen)))
    assert {configuration.odd for configuration in seen[:2]} == {True, False}
