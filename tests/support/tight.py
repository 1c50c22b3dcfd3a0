"""Small problems that are hard to pack for their size, by seed: few bytes, many ties, hardly any slack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memplan_engine.problem import FREE, Gap, Problem, make_problem
from tests.support import reference

Random = np.random.Generator

NO_WAY_OUT = np.array(
    [(0, 1, 3), (0, 2, 2), (1, 3, 1), (1, 4, 1), (1, 5, 1), (2, 3, 1), (2, 4, 1), (3, 5, 2), (4, 5, 2)]
)
"""start, end, size: LOAD is 5 bytes, and 6 are needed."""


def drawn(random: Random) -> Problem:
    """Anywhere, of any length."""
    count, steps = int(random.integers(4, 11)), int(random.integers(3, 9))
    start = random.integers(0, steps, count)
    end = np.minimum(start + random.integers(1, 6, count), steps)
    return make_problem(start, end, random.integers(1, 5, count))


def equal_lengths(random: Random) -> Problem:
    """Lifetimes of one length: no buffer contains another, or many are alike."""
    count, length = int(random.integers(6, 15)), int(random.integers(2, 5))
    start = random.integers(0, 8, count)
    return make_problem(start, start + length, random.integers(1, 4, count))


def nested(random: Random) -> Problem:
    """All that live long share the middle; a few short ones beside."""
    count, few = int(random.integers(4, 10)), int(random.integers(0, 4))
    start = np.concatenate([random.integers(0, 4, count), random.integers(0, 8, few)])
    end = np.concatenate([random.integers(4, 9, count), start[count:] + 1])
    return make_problem(start, end, random.integers(1, 4, count + few))


def twins(random: Random) -> Problem:
    """Each buffer up to three times, shuffled."""
    count = int(random.integers(3, 6))
    start = random.integers(0, 6, count)
    columns = (start, start + random.integers(1, 5, count), random.integers(1, 4, count))
    copies = random.integers(1, 4, count)
    order = random.permutation(int(copies.sum()))
    return make_problem(*(np.repeat(column, copies)[order] for column in columns))


def crowded(random: Random, buffers: int = 0, room: int = 0, largest: int = 0) -> Problem:
    """Every step holds exactly `room` bytes: what ends is replaced by others of the same sum."""
    buffers = buffers or int(random.integers(6, 15))
    room = room or int(random.integers(5, 13))
    largest = largest or int(random.integers(2, 6))
    rows = crowded_rows(random, buffers, room, largest)
    return make_problem(*np.array(rows)[random.permutation(len(rows))].T)


def crowded_rows(random: Random, buffers: int, room: int, largest: int) -> list[tuple[int, int, int]]:
    """The same as start, end and size, in the order in which they end."""
    live: list[tuple[int, int]] = []
    rows: list[tuple[int, int, int]] = []
    step, left = 0, room
    while True:
        while left:
            size = int(min(left, random.integers(1, largest + 1)))  # type: ignore[call-overload]
            live.append((step, size))
            left -= size
        if len(rows) + len(live) >= buffers:
            break
        step += 1
        for _ in range(min(len(live), int(random.integers(1, 3)))):
            start, size = live.pop(int(random.integers(len(live))))
            rows.append((start, step, size))
            left += size
    return rows + [(start, step + 1, size) for start, size in live]


def nearly_crowded(random: Random) -> Problem:
    """The same with a few buffers a byte smaller."""
    problem = crowded(random)
    size = problem.size.copy()
    fewer = random.integers(0, len(size), int(random.integers(0, 4)))
    size[fewer] = np.maximum(1, size[fewer] - 1)
    return make_problem(problem.start, problem.end, size)


def no_way_out(random: Random) -> Problem:
    """Near NO_WAY_OUT: two buffers a byte smaller or larger, and some more beside them."""
    rows = NO_WAY_OUT * (1, 1, int(random.integers(1, 3)))
    rows[random.integers(0, len(rows), 2), 2] += random.integers(-1, 2, 2)
    start = random.integers(0, 5, int(random.integers(0, 4)))
    more = np.column_stack([start, random.integers(start + 1, 6), np.ones_like(start)])
    rows = np.concatenate([rows, more])
    rows[:, 2] = np.maximum(rows[:, 2], 1)
    return make_problem(*rows[random.permutation(len(rows))].T)


def aligned(random: Random) -> Problem:
    """One alignment for all, or one for each."""
    problem = nearly_crowded(random) if random.random() < 0.5 else drawn(random)
    one_each = random.random() < 0.7
    alignment = random.choice([1, 2, 3, 4], len(problem)) if one_each else int(random.choice([2, 3, 4]))
    rows = np.arange(min(len(problem), 10))
    columns = (problem.start[rows], problem.end[rows], problem.size[rows])
    return make_problem(*columns, alignment=alignment[rows] if one_each else alignment)  # type: ignore[index]


def fixed(random: Random) -> Problem:
    """Some buffers have the offsets that lowest-first placement in a random order gives them."""
    problem = aligned(random) if random.random() < 0.5 else nearly_crowded(random)
    placed = reference.place(problem, random.permutation(len(problem)).tolist(), "first")
    kept = np.where(random.random(len(problem)) < 0.3, placed, FREE)
    return make_problem(
        problem.start, problem.end, problem.size, alignment=problem.alignment, fixed=kept.astype(np.int64)
    )


def gaps(random: Random, windows: float = 0.0) -> Problem:
    """About every other buffer has a gap, a share `windows` of these one with a window."""
    kinds = (fixed, aligned, nearly_crowded, nearly_crowded, drawn)
    problem = kinds[int(random.integers(len(kinds)))](random)
    found = {}
    for buffer in range(len(problem)):
        start, end, size = (int(column[buffer]) for column in (problem.start, problem.end, problem.size))
        if end - start < 2 or random.random() < 0.5:
            continue
        begin = int(random.integers(start, end))
        finish = int(random.integers(begin + 1, end + 1))
        low = high = 0
        if random.random() < windows:
            low = int(random.integers(0, size))
            high = int(random.integers(low + 1, size + 1))
        found[buffer] = (Gap(begin, finish, low, high),)
    return make_problem(
        problem.start,
        problem.end,
        problem.size,
        alignment=problem.alignment,
        fixed=problem.fixed,
        gaps=found,
    )


def windows(random: Random) -> Problem:
    """Gaps of both kinds."""
    return gaps(random, 0.7)


PLAIN: tuple[Callable[[Random], Problem], ...] = (
    drawn, equal_lengths, nested, twins, crowded, nearly_crowded, no_way_out,
)  # fmt: skip
"""Kinds without alignments, fixed offsets and gaps: all rules of the search are at work."""
EXACT = (*PLAIN, aligned, fixed, gaps)
"""Kinds that are always settled."""
KINDS = (*EXACT, windows)


def many(kind: Callable[[Random], Problem], count: int, seed: int = 0) -> list[Problem]:
    """`count` problems of a kind."""
    return [kind(np.random.default_rng((seed, place))) for place in range(count)]
