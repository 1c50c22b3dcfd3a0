"""The engine's definitions in plain Python, written to be obviously right and not to be fast.

Everything works step by step and pair by pair from the definitions; nothing here imports a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from memplan_engine.problem import FREE, Problem


def held(problem: Problem, buffer: int, step: int) -> tuple[int, int] | None:
    """The bytes `[low, high)` of itself that the buffer holds at the step; None when it is not live or in a
    gap without a window. Empty for a buffer without bytes."""
    if not problem.start[buffer] <= step < problem.end[buffer]:
        return None
    for gap in problem.gaps.get(buffer, ()):
        if gap.start <= step < gap.end:
            return (gap.low, gap.high) if gap.low < gap.high else None
    return 0, int(problem.size[buffer])


def steps_that_matter(problem: Problem) -> list[int]:
    """A step of each stretch of time in which nothing changes: starts, ends and the edges of gaps."""
    edges = {0, *problem.start.tolist(), *problem.end.tolist()}
    edges |= {edge for gaps in problem.gaps.values() for gap in gaps for edge in (gap.start, gap.end)}
    return sorted(edges)


def overlaps(problem: Problem, offsets: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """The pairs of buffers that share a byte, each with the steps (that matter) at which they do."""
    found: dict[tuple[int, int], list[int]] = {}
    for step in steps_that_matter(problem):
        spans = {}
        for buffer in range(len(problem)):
            window = held(problem, buffer, step)
            if window and window[0] < window[1]:
                spans[buffer] = (int(offsets[buffer]) + window[0], int(offsets[buffer]) + window[1])
        for one, other in combinations(spans, 2):
            if spans[one][0] < spans[other][1] and spans[other][0] < spans[one][1]:
                found.setdefault((one, other), []).append(step)
    return found


def assert_sound(problem: Problem, offsets: Sequence[int]) -> None:
    """Every rule of a valid placement, by brute force."""
    assert len(offsets) == len(problem)
    for buffer in range(len(problem)):
        offset = int(offsets[buffer])
        assert offset >= 0
        assert offset + int(problem.size[buffer]) < 2**63
        assert offset % int(problem.alignment[buffer]) == 0
        assert problem.fixed[buffer] in (FREE, offset)
    assert overlaps(problem, offsets) == {}


def arena(problem: Problem, offsets: Iterable[int]) -> int:
    return max((int(o) + s for o, s in zip(offsets, problem.size.tolist(), strict=True)), default=0)


def live_at(problem: Problem, step: int) -> int:
    windows = [held(problem, buffer, step) for buffer in range(len(problem))]
    return sum(window[1] - window[0] for window in windows if window)


def load(problem: Problem) -> int:
    return max((live_at(problem, step) for step in steps_that_matter(problem)), default=0)


def forbidden(problem: Problem, offsets: dict[int, int], buffer: int) -> set[tuple[int, int]]:
    """The open intervals of offsets at which `buffer` would share a byte with a buffer already placed."""
    intervals = set()
    for step in steps_that_matter(problem):
        mine = held(problem, buffer, step)
        if mine is None:
            continue
        for other, offset in offsets.items():
            theirs = held(problem, other, step)
            if theirs and theirs[0] < theirs[1]:
                intervals.add((offset + theirs[0] - mine[1], offset + theirs[1] - mine[0]))
    return intervals


def place(problem: Problem, order: Sequence[int], fit: str) -> list[int]:
    """Order × fit: those with fixed offsets first, then each where `fit` ("first", "best", "top") says."""
    offsets = {b: int(problem.fixed[b]) for b in order if problem.fixed[b] != FREE}
    for buffer in order:
        if buffer not in offsets:
            intervals = forbidden(problem, offsets, buffer)
            offsets[buffer] = _FITS[fit](intervals, int(problem.alignment[buffer]))
    return [offsets[buffer] for buffer in range(len(problem))]


def _first(intervals: set[tuple[int, int]], alignment: int) -> int:
    """The lowest aligned offset in no interval: it is the lowest at or after 0 or the end of an interval."""
    candidates = {
        _aligned(point, alignment) for point in (0, *(right for _, right in intervals if right > 0))
    }
    return min(c for c in candidates if not _inside(c, intervals))


def _best(intervals: set[tuple[int, int]], alignment: int) -> int:
    """In the shortest stretch of allowed offsets between two intervals that has an aligned one."""
    stretches = []
    for begin in {0, *(right for _, right in intervals if right > 0)}:
        following = [left for left, _ in intervals if left >= begin]
        if not _inside(begin, intervals) and following:
            finish = min(following)
            if _aligned(begin, alignment) <= finish:
                stretches.append((finish - begin, begin))
    return _aligned(min(stretches)[1], alignment) if stretches else _top(intervals, alignment)


def _top(intervals: set[tuple[int, int]], alignment: int) -> int:
    return _aligned(max([0, *(right for _, right in intervals)]), alignment)


_FITS = {"first": _first, "best": _best, "top": _top}


def _inside(point: int, intervals: set[tuple[int, int]]) -> bool:
    return any(left < point < right for left, right in intervals)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def order_of(problem: Problem, name: str) -> list[int]:
    """The order of each strategy by its definition; ties by start, then by index."""
    size, start, end = (column.tolist() for column in (problem.size, problem.start, problem.end))
    buffers = range(len(problem))
    if name == "greedy_by_breadth":
        return _breadth_order(problem)
    keys = {
        "first_fit_by_start": lambda b: (start[b], b),
        "greedy_by_size": lambda b: (-size[b], start[b], b),
        "best_fit_decreasing": lambda b: (-size[b], start[b] - end[b], start[b], b),
        "greedy_by_area": lambda b: (-size[b] * (end[b] - start[b]), start[b], b),
        "greedy_by_lifetime": lambda b: (start[b] - end[b], -size[b], start[b], b),
        "greedy_by_conflicts": lambda b: (-_conflicts(problem, b), -size[b], start[b], b),
    }
    return sorted(buffers, key=keys[name])


def _conflicts(problem: Problem, buffer: int) -> int:
    start, end = problem.start, problem.end
    others = [other for other in range(len(problem)) if other != buffer]
    return sum(bool(start[other] < end[buffer] and start[buffer] < end[other]) for other in others)


def _breadth_order(problem: Problem) -> list[int]:
    """Pisarchyk and Lee, to the letter: the steps by breadth, descending, the earliest of equals first; at
    each step those live there that are not placed yet by size, descending."""
    order: list[int] = []
    steps = steps_that_matter(problem)
    for step in sorted(steps, key=lambda step: (-live_at(problem, step), step)):
        live = [
            b for b in range(len(problem)) if problem.start[b] <= step < problem.end[b] and b not in order
        ]
        order += sorted(live, key=lambda b: (-int(problem.size[b]), int(problem.start[b]), b))
    return order


def optimum(problem: Problem) -> int:
    """The smallest arena there is, by trying every offset. For a handful of buffers of a few bytes."""
    room = load(problem)
    while not _fits(problem, {}, room):
        room += 1
    return room


def _fits(problem: Problem, offsets: dict[int, int], room: int) -> bool:
    if len(offsets) == len(problem):
        return True
    buffer = len(offsets)
    fixed, size = int(problem.fixed[buffer]), int(problem.size[buffer])
    choices = range(0, room - size + 1, int(problem.alignment[buffer])) if fixed == FREE else [fixed]
    intervals = forbidden(problem, offsets, buffer) if size else set()
    return any(
        offset + size <= room
        and not _inside(offset, intervals)
        and _fits(problem, {**offsets, buffer: offset}, room)
        for offset in choices
    )


def least_arena(problem: Problem) -> int:
    """`optimum`, quick enough for some fourteen buffers of a few bytes."""
    room = max(load(problem), max(problem.size.tolist(), default=0))
    while not fits(problem, room):
        room += 1
    return room


def fits(problem: Problem, room: int) -> bool:
    """Whether there is a placement within `room` bytes: buffers in order of their starts, each at every
    offset. What is taken is one number with a bit for each step and byte; from a buffer's start on it alone
    decides about the rest, so that each number is looked at once."""
    order = sorted(range(len(problem)), key=lambda b: int(problem.start[b]))
    starts = [int(problem.start[b]) for b in order]
    shapes = [_shape(problem, b, room) for b in order]
    choices = [_choices(problem, b, room) for b in order]
    dead_ends: set[tuple[int, int]] = set()

    def complete(place: int, taken: int) -> bool:
        if place == len(order):
            return True
        state = place, taken >> starts[place] * room
        if state in dead_ends:
            return False
        for offset in choices[place]:
            shape = shapes[place] << offset
            if not taken & shape and complete(place + 1, taken | shape):
                return True
        dead_ends.add(state)
        return False

    return complete(0, 0)


def _shape(problem: Problem, buffer: int, room: int) -> int:
    """A bit for each step and byte that the buffer holds at offset 0."""
    shape = 0
    for step in range(int(problem.start[buffer]), int(problem.end[buffer])):
        low, high = held(problem, buffer, step) or (0, 0)
        shape |= (2**high - 2**low) << step * room
    return shape


def _choices(problem: Problem, buffer: int, room: int) -> list[int]:
    last, fixed = room - int(problem.size[buffer]), int(problem.fixed[buffer])
    if fixed != FREE:
        return [fixed] if fixed <= last else []
    return list(range(0, last + 1, int(problem.alignment[buffer])))
