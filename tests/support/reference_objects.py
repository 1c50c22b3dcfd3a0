"""Shared objects and the JIT planner's linear scan in plain Python, from their definitions, step by step.

Lifetimes count as a whole, with their gaps. A step "that matters" is one at which something starts: nothing
is live together anywhere that is not live together there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product

from memplan_engine.problem import Problem


def live(problem: Problem, step: int) -> list[int]:
    return [b for b in range(len(problem)) if problem.start[b] <= step < problem.end[b]]


def starts(problem: Problem) -> list[int]:
    return sorted({*problem.start.tolist()})


def profile(problem: Problem, step: int) -> list[int]:
    """The sizes live at the step, largest first."""
    return sorted((int(problem.size[b]) for b in live(problem, step)), reverse=True)


def positional_maxima(problem: Problem) -> list[int]:
    profiles = [profile(problem, step) for step in starts(problem)]
    longest = max(map(len, profiles), default=0)
    return [max(entry[k] for entry in profiles if k < len(entry)) for k in range(longest)]


def idle(problem: Problem, one: int, other: int) -> int:
    """Steps between two lifetimes; negative when they meet."""
    return int(max(problem.start[one] - problem.end[other], problem.start[other] - problem.end[one]))


def is_free(problem: Problem, members: Iterable[int], buffer: int) -> bool:
    return all(idle(problem, buffer, member) >= 0 for member in members)


def width(problem: Problem, members: Iterable[int]) -> int:
    return max(int(problem.size[member]) for member in members)


Choose = Callable[[list[list[int]], int], int | None]


def assign(problem: Problem, order: Sequence[int], choose: Choose) -> list[int]:
    """Each buffer in `order` to the object that `choose` names, None for a new one."""
    objects: list[list[int]] = []
    for buffer in order:
        chosen = choose(objects, buffer)
        if chosen is None:
            objects.append([buffer])
        else:
            objects[chosen].append(buffer)
    return numbered(problem, objects)


def numbered(problem: Problem, objects: list[list[int]]) -> list[int]:
    found = {buffer: number for number, members in enumerate(objects) for buffer in members}
    return [found[buffer] for buffer in range(len(problem))]


def by_size(problem: Problem) -> list[int]:
    """Largest first, ties by start, then index; the smallest free object, the first made of equals."""

    def choose(objects: list[list[int]], buffer: int) -> int | None:
        free = [(width(problem, o), k) for k, o in enumerate(objects) if is_free(problem, o, buffer)]
        return min(free)[1] if free else None

    order = sorted(range(len(problem)), key=lambda b: (-problem.size[b], problem.start[b], b))
    return assign(problem, order, choose)


def breadth(problem: Problem, step: int) -> int:
    return sum(profile(problem, step))


def breadth_order(problem: Problem) -> list[int]:
    """Steps by breadth, descending, the first of equals; at each the buffers not yet taken by size."""
    order: list[int] = []
    for step in sorted(starts(problem), key=lambda step: (-breadth(problem, step), step)):
        here = [b for b in live(problem, step) if b not in order]
        order += sorted(here, key=lambda b: (-problem.size[b], problem.start[b], b))
    return order


def by_breadth(problem: Problem) -> list[int]:
    """The smallest free object that is large enough, else the largest free one, the first made of equals."""

    def choose(objects: list[list[int]], buffer: int) -> int | None:
        free = [(width(problem, o), k) for k, o in enumerate(objects) if is_free(problem, o, buffer)]
        large = [pair for pair in free if pair[0] >= problem.size[buffer]]
        if large:
            return min(large)[1]
        return min((-size, k) for size, k in free)[1] if free else None

    return assign(problem, breadth_order(problem), choose)


def by_size_improved(problem: Problem) -> list[int]:
    """At each turn, of all buffers without an object: the one with the leftmost positional maximum, then the
    least idle steps to a free object, then the largest, then by start and index. Its nearest free object, of
    equals the largest, then the first made; without any a new one."""
    maxima = positional_maxima(problem)
    objects: list[list[int]] = []
    waiting = set(range(len(problem)))

    def nearest(buffer: int) -> tuple[float, int, int]:
        free = [
            (min(idle(problem, buffer, member) for member in o), -width(problem, o), k)
            for k, o in enumerate(objects)
            if is_free(problem, o, buffer)
        ]
        return min(free, default=(float("inf"), 0, -1))

    def priority(buffer: int) -> tuple[float, ...]:
        position = sum(maximum >= problem.size[buffer] for maximum in maxima)
        steps, size = nearest(buffer)[0], int(problem.size[buffer])
        return position, steps, -size, int(problem.start[buffer]), buffer

    while waiting:
        buffer = min(waiting, key=priority)
        waiting.remove(buffer)
        chosen = nearest(buffer)[2]
        if chosen < 0:
            objects.append([buffer])
        else:
            objects[chosen].append(buffer)
    return numbered(problem, objects)


def in_order(problem: Problem) -> list[int]:
    """By start, then index: of the free objects the one of the closest size; of two equally close the larger.
    Of equal size the first made of those large enough, the last made of those too small."""

    def choose(objects: list[list[int]], buffer: int) -> int | None:
        need = int(problem.size[buffer])
        free = [(width(problem, o), k) for k, o in enumerate(objects) if is_free(problem, o, buffer)]
        ranked = [(abs(size - need), size < need, k if size >= need else -k, k) for size, k in free]
        return min(ranked)[3] if ranked else None

    order = sorted(range(len(problem)), key=lambda b: (problem.start[b], b))
    return assign(problem, order, choose)


def growth(problem: Problem, objects: Sequence[int]) -> int:
    """What minimum-cost flow makes least: along each object, in order of time, what each buffer adds to the
    one before it."""
    total = 0
    for chosen in set(objects):
        members = [b for b in range(len(problem)) if objects[b] == chosen]
        members.sort(key=lambda b: int(problem.start[b]))
        sizes = [0, *(int(problem.size[b]) for b in members)]
        total += sum(max(0, after - before) for before, after in pairwise(sizes))
    return total


def least_growth(problem: Problem) -> int:
    """The least growth of all assignments, by trying every one. For a handful of buffers."""
    n = len(problem)
    best = int(problem.size.sum())
    for objects in product(*(range(b + 1) for b in range(n))):
        groups = [[b for b in range(n) if objects[b] == k] for k in set(objects)]
        if all(idle(problem, a, b) >= 0 for members in groups for a in members for b in members if a < b):
            best = min(best, growth(problem, objects))
    return best


def linear_scan(problem: Problem, fit: str = "best") -> list[int]:
    """Active set and free list, byte by byte: `used` is the end of all that was ever taken; what lies below
    and holds nobody who is live is free. Without gaps and fixed offsets; sizes as they are rounded up."""
    n, unit = len(problem), problem.alignment.tolist()
    start, end = problem.start.tolist(), problem.end.tolist()
    size = [-(-bytes_ // a) * a for bytes_, a in zip(problem.size.tolist(), unit, strict=True)]
    offsets: dict[int, int] = {}
    used = 0
    for buffer in sorted(range(n), key=lambda b: (start[b], end[b], b)):
        if size[buffer] == 0:
            offsets[buffer] = 0
            continue
        active = [b for b in offsets if end[b] > start[buffer] and size[b]]
        ranges = _free_ranges([(offsets[b], offsets[b] + size[b]) for b in active], used)
        fitting = [
            (high - low if fit == "best" else 0, low)
            for low, high in ranges
            if _up(low, unit[buffer]) + size[buffer] <= high
        ]
        if fitting:
            offsets[buffer] = _up(min(fitting)[1], unit[buffer])
            continue
        later = [
            (end[b], start[b], b)
            for b in active
            if end[b] > end[buffer] and _up(offsets[b], unit[buffer]) + size[buffer] <= offsets[b] + size[b]
        ]
        mover = buffer
        if later:
            mover = max(later)[2]
            offsets[buffer] = _up(offsets[mover], unit[buffer])
        offsets[mover] = _up(used, unit[mover])
        used = offsets[mover] + size[mover]
    return [offsets[buffer] for buffer in range(n)]


def _up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _free_ranges(taken: list[tuple[int, int]], used: int) -> list[tuple[int, int]]:
    ranges, reach = [], 0
    for low, high in [*sorted(taken), (used, used)]:
        if low > reach:
            ranges.append((reach, low))
        reach = max(reach, high)
    return ranges
