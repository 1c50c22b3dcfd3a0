"""How the validator's own solver narrows offsets, each step worked out by hand."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from memplan_engine.kernels.verify import recheck
from memplan_engine.kernels.verify.recheck import ABOVE, BELOW, FAILS, HOLDS, NARROWED, OPEN, Disjunctions


def stacked(sizes, room, units=None):
    """Buffers that are all live at one step, to be stacked in `room` bytes."""
    n = len(sizes)
    size, unit = np.array(sizes), np.array(units or [1] * n)
    one, other = np.array(list(combinations(range(n), 2))).T
    pair_of = np.full((n, n), -1)
    pair_of[one, other] = pair_of[other, one] = np.arange(len(one))
    lowest, highest = np.zeros(n, dtype=np.int64), (room - size) // unit * unit
    return Disjunctions(
        lowest, highest, unit, one, other, size[one], size[other], pair_of,
        np.array([0, n]), np.arange(n), np.zeros(n, dtype=np.int64), size,
    )  # fmt: skip


def orders(task, upward):
    """What is known of each pair when the buffers lie in the order `upward`."""
    places = {buffer: place for place, buffer in enumerate(upward)}
    pairs = zip(task.one.tolist(), task.other.tolist(), strict=True)
    return np.array([ABOVE if places[i] < places[j] else BELOW for i, j in pairs], dtype=np.int8)


def stack(task, order, lower=None):
    lower, upper = (task.lowest if lower is None else np.array(lower)).copy(), task.highest.copy()
    found = recheck._stack.interpreted(task, lower, upper, order, 0, len(task.member))
    return found, lower.tolist(), upper.tolist()


@pytest.mark.parametrize("upward", list(permutations(range(3))))
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_what_lies_in_a_known_order_is_stacked(upward, spare):
    sizes = [2, 3, 4]
    task = stacked(sizes, 9 + spare)
    offsets = dict(zip(upward, [0, *np.cumsum([sizes[b] for b in upward[:-1]]).tolist()], strict=True))
    lowest = [offsets[buffer] for buffer in range(3)]
    highest = [offset + spare for offset in lowest]
    assert stack(task, orders(task, upward)) == (NARROWED, lowest, highest)
    narrowed = task._replace(lowest=np.array(lowest), highest=np.array(highest))
    assert stack(narrowed, orders(task, upward)) == (HOLDS, lowest, highest)
    assert stack(stacked(sizes, 8), orders(task, upward))[0] == FAILS


def test_only_what_is_known_counts():
    task = stacked([2, 3, 4], 12)
    nothing = np.full(3, OPEN, dtype=np.int8)
    assert stack(task, nothing) == (HOLDS, [0, 0, 0], [10, 9, 8])
    for pair, (i, j) in enumerate(combinations(range(3), 2)):
        order = nothing.copy()
        order[pair] = ABOVE
        lower, upper = [0, 0, 0], [10, 9, 8]
        lower[j], upper[i] = [2, 3, 4][i], upper[j] - [2, 3, 4][i]
        assert stack(task, order) == (NARROWED, lower, upper)
        order[pair] = BELOW
        lower, upper = [0, 0, 0], [10, 9, 8]
        lower[i], upper[j] = [2, 3, 4][j], upper[i] - [2, 3, 4][j]
        assert stack(task, order) == (NARROWED, lower, upper)


def test_a_stack_stands_on_the_highest_of_those_below():
    # b, 3 bytes, and c, 4, lie below a. From b's 5 on: 5 + 3; from c's 2 on: 2 + 4 + 3.
    task = stacked([2, 3, 4], 20)
    order = np.array([BELOW, BELOW, OPEN], dtype=np.int8)
    assert stack(task, order, [0, 5, 2])[1] == [9, 5, 2]
    # From b's 7 on 10, from c's 2 on still 9.
    assert stack(task, order, [0, 7, 2])[1] == [10, 7, 2]


def test_offsets_are_rounded_to_what_divides_them():
    # Upward a, b, c: b from 2, c from 5, which is 8 in units of 4. At most: c 8, b 12 − 4 − 3, which is 4.
    task = stacked([2, 3, 4], 12, [1, 2, 4])
    assert stack(task, orders(task, (0, 1, 2))) == (NARROWED, [0, 2, 8], [3, 4, 8])


def test_windows_take_their_own_bytes_only():
    # Of a, 10 bytes, [4, 6) is held here; b has 3. b below a: 3 fit below its byte 4 at offset 0.
    task = stacked([10, 3], 20)._replace(low=np.array([4, 0]), high=np.array([6, 3]))
    order = np.array([BELOW], dtype=np.int8)
    assert stack(task, order) == (NARROWED, [0, 0], [10, 11])
    # And above it: from byte 6 on; a's bytes end below 17 + 0.
    assert stack(task, np.array([ABOVE], dtype=np.int8)) == (NARROWED, [0, 6], [10, 17])


SETTLED = [
    # Of 3 and 5 bytes: what is known, lower, upper; what is known then, lower, upper.
    (OPEN, (0, 0), (5, 3), HOLDS, OPEN, (0, 0), (5, 3)),
    (OPEN, (0, 0), (4, 3), NARROWED, ABOVE, (0, 3), (0, 3)),
    (OPEN, (0, 0), (5, 2), NARROWED, BELOW, (5, 0), (5, 0)),
    (OPEN, (0, 0), (4, 2), FAILS, BELOW, (5, 0), (4, -1)),
    (OPEN, (0, 3), (0, 3), NARROWED, ABOVE, (0, 3), (0, 3)),
    (ABOVE, (0, 3), (2, 5), HOLDS, ABOVE, (0, 3), (2, 5)),
    (ABOVE, (0, 3), (3, 5), NARROWED, ABOVE, (0, 3), (2, 5)),
    (ABOVE, (1, 3), (2, 5), NARROWED, ABOVE, (1, 4), (2, 5)),
    (BELOW, (5, 0), (7, 2), HOLDS, BELOW, (5, 0), (7, 2)),
    (BELOW, (5, 1), (7, 2), NARROWED, BELOW, (6, 1), (7, 2)),
    (BELOW, (5, 0), (7, 3), NARROWED, BELOW, (5, 0), (7, 2)),
    (ABOVE, (3, 0), (4, 5), FAILS, ABOVE, (3, 6), (2, 5)),
    (ABOVE, (0, 0), (9, 2), FAILS, ABOVE, (0, 3), (-1, 2)),
]


@pytest.mark.parametrize(("was", "lower", "upper", "found", "known", "least", "most"), SETTLED)
def test_a_pair_is_settled_and_held_apart(was, lower, upper, found, known, least, most):
    task = stacked([3, 5], 100)
    order, low, high = np.array([was], dtype=np.int8), np.array(lower), np.array(upper)
    assert recheck._settle.interpreted(task, low, high, order, 0) == found
    assert (order[0], tuple(low), tuple(high)) == (known, least, most)


@pytest.mark.parametrize(
    ("lower", "upper", "first"),
    [
        # Above: b's upper less a's lower less 3; below: a's upper less b's lower less 5.
        ((0, 0), (5, 3), ABOVE),
        ((0, 0), (9, 3), BELOW),
        ((0, 0), (5, 9), ABOVE),
        ((4, 0), (9, 7), BELOW),
        ((0, 4), (9, 7), ABOVE),
        ((2, 1), (8, 7), ABOVE),
        ((2, 1), (9, 7), BELOW),
    ],
)
def test_the_order_with_more_room_is_tried_first(lower, upper, first):
    task = stacked([3, 5], 100)
    assert recheck._roomier.interpreted(task, np.array(lower), np.array(upper), 0) == first


def test_the_pair_with_the_least_room_for_its_bytes_and_weight_is_tried_first():
    task = stacked([2, 2, 2], 100)
    nothing = np.full(3, OPEN, dtype=np.int8)

    def chosen(upper, order=nothing, task=task, heavy=(), lower=(0, 0, 0)):
        weight = np.ones(6)
        np.add.at(weight, list(heavy), 1)
        return recheck._choose.interpreted(task, np.array(lower), np.array(upper), order, weight)

    assert chosen([9, 9, 9]) == 0
    assert chosen([9, 5, 5]) == 2
    assert chosen([5, 9, 5]) == 1
    assert chosen([9, 9, 9], lower=[0, 0, 5]) == 1
    assert chosen([9, 9, 9], lower=[0, 5, 4]) == 2
    assert chosen([9, 9, 9], lower=[5, 0, 0]) == 0
    assert chosen([9, 5, 5], orders(task, (0, 1, 2))) == -1
    assert chosen([9, 5, 5], np.array([OPEN, OPEN, ABOVE], dtype=np.int8)) == 0
    # A pair's own weight, pairs being the first three, and that of its buffers.
    assert chosen([9, 9, 9], heavy=[1]) == 1
    assert chosen([9, 9, 9], heavy=[5]) == 1
    assert chosen([9, 9, 9], heavy=[4, 5]) == 2
    assert chosen([0, 0, 0], heavy=[1]) == 1
    # Twice the bytes need twice the room.
    assert chosen([9, 9, 9], task=stacked([2, 2, 4], 100)) == 1
    assert chosen([4, 4, 12], task=stacked([2, 2, 4], 100)) == 0
    # 10 bytes three times, or 2 bytes eleven times, and twelve, and sixteen.
    assert [chosen([9, 9, 9], task=stacked([1, 1, 9], 100), heavy=[0] * n) for n in (8, 9, 13)] == [1, 1, 0]


@pytest.mark.parametrize("upward", list(permutations(range(3))))
def test_pairs_are_held_apart_until_nothing_changes(upward):
    """Without any clique: who lies on top is moved by those in the middle, whichever pair comes first."""
    sizes = [2, 3, 4]
    task = stacked(sizes, 10)._replace(first=np.zeros(1, dtype=np.int64))
    lower, upper, work = task.lowest.copy(), task.highest.copy(), np.zeros(1, dtype=np.int64)
    assert recheck._propagate.interpreted(task, lower, upper, orders(task, upward), np.ones(6), work)
    offsets = dict(zip(upward, [0, *np.cumsum([sizes[b] for b in upward[:-1]]).tolist()], strict=True))
    assert lower.tolist() == [offsets[buffer] for buffer in range(3)]
    assert upper.tolist() == [offsets[buffer] + 1 for buffer in range(3)]


@pytest.mark.parametrize(("known", "passes"), [((OPEN, OPEN, OPEN), 1), ((ABOVE, ABOVE, ABOVE), 2)])
def test_a_pass_counts_by_its_pairs_and_by_the_pairs_in_its_cliques(known, passes):
    task, work = stacked([2, 3, 4], 12), np.zeros(1, dtype=np.int64)
    order, weight = np.array(known, dtype=np.int8), np.ones(6)
    assert recheck._propagate.interpreted(task, task.lowest.copy(), task.highest.copy(), order, weight, work)
    assert work[0] == passes * (4 * 3 + 12 * 3 * 3)
    assert weight.tolist() == [1] * 6


def test_what_fails_grows_in_weight():
    # Each pair fits, and all three do not: each member of the clique has a quarter more.
    task, work = stacked([2, 3, 4], 8), np.zeros(1, dtype=np.int64)
    order, weight = np.full(3, OPEN, dtype=np.int8), np.ones(6)
    asked = task, task.lowest.copy(), task.highest.copy(), order, weight, work
    assert not recheck._propagate.interpreted(*asked)
    assert weight.tolist() == [1, 1, 1, 1.25, 1.25, 1.25]
    # b and c do not fit: their pair, the last, has one more.
    task, weight = stacked([2, 3, 4], 6), np.ones(6)
    asked = task, task.lowest.copy(), task.highest.copy(), order, weight, work
    assert not recheck._propagate.interpreted(*asked)
    assert weight.tolist() == [1, 1, 2, 1, 1, 1]


def test_a_long_row_of_guesses_is_taken_back_one_by_one():
    """More open pairs than the first 16 rows of the search have room for, and room for all but one byte."""
    sizes = [1] * 7
    task = stacked(sizes, 7)
    known = np.full(len(task.one), OPEN, dtype=np.int8)
    never = np.zeros(1, dtype=np.bool_)
    outcome, nodes, offsets = recheck.decide_pairs.interpreted(task, known, 10**9, never)
    assert outcome == recheck.PLACED
    assert nodes > 1
    assert all(above - below == 1 for below, above in pairwise(sorted(offsets.tolist())))
    assert recheck.decide_pairs.interpreted(stacked(sizes, 6), known, 10**9, never)[0] == recheck.IMPOSSIBLE
    for most_work, stop in ((0, never), (10**9, ~never)):
        ended = recheck.decide_pairs.interpreted(task, known, most_work, stop)
        assert ended[:2] == (recheck.UNDECIDED, 0)
