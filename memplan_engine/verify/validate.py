"""The independent checker: does a plan keep every rule? Shares no code with the strategies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.kernels.verify.sweep import NOBODY, find_collisions
from memplan_engine.plan import Plan
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.verify.certificates import check_certificate

MOST_VIOLATIONS = 100
"""How many violations of each rule are listed by name."""


class Rule(StrEnum):
    """What a valid plan keeps."""

    COUNT = "one offset for each buffer"
    RANGE = "0 ≤ offset, offset + size < 2^63"
    ALIGNMENT = "the offset is a multiple of the alignment"
    FIXED = "fixed offsets are kept"
    OVERLAP = "buffers that are live together share no bytes"
    OBJECTS = "buffers of one object are never live together, and objects share no bytes"
    BANK = "each buffer lives in one bank that it may live in, and the banks' plans have it there"
    CAPACITY = "each bank stays within its capacity"
    MOVES = "each op finds the current value where it looks, and each copy is paid for"
    BOUND = "the certificate proves the lower bound"


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of `rule`: the buffers by name, the steps `[start, end)` and the bytes `[low, high)`."""

    rule: Rule
    buffers: tuple[str, ...]
    message: str
    steps: tuple[int, int] | None = None
    byte_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All violations, at most MOST_VIOLATIONS listed for each rule; `counts` has how many there are.

    For overlaps `counts` says how many buffers overlap an earlier one. `replayed` says what a search of the
    validator's own confirmed, `unchecked` what it could not get through: neither right nor wrong.
    """

    violations: tuple[Violation, ...]
    counts: dict[Rule, int]
    replayed: str = ""
    unchecked: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether there is no violation."""
        return not self.violations


def validate_plan(plan: Plan, *, replay: bool = True) -> Report:
    """Check every rule on `plan`: O(n log n), one million buffers in seconds.

    A bound that rests on a core is decided a second time, by the validator's own search, which takes up to
    some seconds; without `replay` only whether the core is well stated.
    """
    problem, offsets = plan.problem, plan.offsets
    violations: list[Violation] = []
    counts: dict[Rule, int] = {}
    if len(offsets) != len(problem):
        message = f"{len(offsets)} offsets for {len(problem)} buffers"
        return Report((Violation(Rule.COUNT, (), message),), {Rule.COUNT: 1})
    for rule, broken, text in _column_rules(problem, offsets):
        rows = np.flatnonzero(broken)
        if len(rows):
            counts[rule] = len(rows)
            violations += [_of_row(rule, problem, offsets, int(row), text) for row in rows[:MOST_VIOLATIONS]]
    if Rule.RANGE not in counts:
        overlaps, colliding = _overlaps(problem, offsets)
        if colliding:
            counts[Rule.OVERLAP] = colliding
            violations += overlaps
    if plan.objects is not None and Rule.RANGE not in counts:
        wrong, broken_objects = _check_objects(problem, offsets, plan.objects)
        if broken_objects:
            counts[Rule.OBJECTS] = broken_objects
            violations += wrong[:MOST_VIOLATIONS]
    judged = check_certificate(problem, plan.bound, replay=replay)
    if judged.fault:
        counts[Rule.BOUND] = 1
        names = tuple(problem.names[buffer] for buffer in judged.core)
        violations.append(Violation(Rule.BOUND, names, judged.fault))
    return Report(tuple(violations), counts, judged.replayed, judged.unchecked)


def _column_rules(problem: Problem, offsets: Ints) -> list[tuple[Rule, Ints, str]]:
    aligned = offsets % problem.alignment == 0
    unmoved = (problem.fixed == FREE) | (problem.fixed == offsets)
    in_range = (offsets >= 0) & (offsets <= np.iinfo(np.int64).max - problem.size)
    return [
        (Rule.RANGE, ~in_range, "offset {offset} with size {size}"),
        (Rule.ALIGNMENT, ~aligned, "offset {offset} is not a multiple of alignment {alignment}"),
        (Rule.FIXED, ~unmoved, "offset {offset}, fixed at {fixed}"),
    ]


def _of_row(rule: Rule, problem: Problem, offsets: Ints, row: int, text: str) -> Violation:
    buffer, offset = problem[row], int(offsets[row])
    values = text.format(offset=offset, size=buffer.size, alignment=buffer.alignment, fixed=buffer.fixed)
    return Violation(
        rule,
        (buffer.name,),
        f"{buffer.name}: {values}",
        (buffer.start, buffer.end),
        (offset, offset + buffer.size),
    )


def _overlaps(problem: Problem, offsets: Ints) -> tuple[list[Violation], int]:
    """The first overlaps, each with both buffers, and how many rectangles overlap an earlier one."""
    owner, start, end, low, high = _rectangles(problem, offsets)
    n = len(owner)
    ids = np.arange(n)
    time = np.concatenate([end, start])
    # Ends come before begins of the same step: lifetimes are half-open.
    events = np.concatenate([-ids - 1, ids])[np.argsort(time, kind="stable")]
    edges = np.unique(np.concatenate([low, high]))
    collides = find_collisions(events, np.searchsorted(edges, low), np.searchsorted(edges, high), len(edges))
    colliding = np.flatnonzero(collides != NOBODY)
    pairs: dict[tuple[int, int], Violation] = {}
    for one in colliding[:MOST_VIOLATIONS]:
        meets = (start < end[one]) & (start[one] < end) & (low < high[one]) & (low[one] < high)
        for other in np.flatnonzero(meets):
            first, second = sorted((int(owner[one]), int(owner[other])))
            if first != second and (first, second) not in pairs and len(pairs) < MOST_VIOLATIONS:
                pairs[first, second] = _overlap(
                    problem,
                    (first, second),
                    (int(max(start[one], start[other])), int(min(end[one], end[other]))),
                    (int(max(low[one], low[other])), int(min(high[one], high[other]))),
                )
    return list(pairs.values()), len(colliding)


def _overlap(
    problem: Problem, pair: tuple[int, int], steps: tuple[int, int], byte_range: tuple[int, int]
) -> Violation:
    one, other = (problem.names[buffer] for buffer in pair)
    message = (
        f"{one} and {other} overlap at steps {steps[0]}–{steps[1] - 1} "
        f"in bytes {byte_range[0]}–{byte_range[1] - 1} ({byte_range[1] - byte_range[0]} bytes)"
    )
    return Violation(Rule.OVERLAP, (one, other), message, steps, byte_range)


def _rectangles(problem: Problem, offsets: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Owner, start, end, low and high of everything that takes bytes; gaps cut their buffer."""
    plain = np.ones(len(problem), dtype=bool)
    plain[list(problem.gaps)] = False
    plain &= problem.size > 0
    rows = np.flatnonzero(plain)
    whole = [
        rows, problem.start[rows], problem.end[rows], offsets[rows], offsets[rows] + problem.size[rows]
    ]  # fmt: skip
    parts = []
    for buffer, gaps in problem.gaps.items():
        offset, size = int(offsets[buffer]), int(problem.size[buffer])
        edges = [int(problem.start[buffer]), *(e for gap in gaps for e in (gap.start, gap.end))]
        edges.append(int(problem.end[buffer]))
        windows = [(0, size)] + [w for gap in gaps for w in ((gap.low, gap.high), (0, size))]
        for begin, finish, (low, high) in zip(edges, edges[1:], windows, strict=False):
            if begin < finish and low < high:
                parts.append((buffer, begin, finish, offset + low, offset + high))
    cut = np.array(parts, dtype=np.int64).reshape(len(parts), 5)
    owner, start, end, low_, high_ = (
        np.concatenate([column, cut[:, index]]) for index, column in enumerate(whole)
    )
    return owner, start, end, low_, high_


def _check_objects(problem: Problem, offsets: Ints, objects: Ints) -> tuple[list[Violation], int]:
    """What is wrong with the objects of a placement, and how often.

    Objects are numbered 0 … k − 1 without a gap; two buffers of one object are never live together, not in
    their gaps either; an object reaches from the first to the last byte of its buffers, and no other buffer
    lies in there. O(n log n).
    """
    if len(objects) != len(problem):
        message = f"{len(objects)} objects for {len(problem)} buffers"
        return [Violation(Rule.OBJECTS, (), message)], 1
    distinct = np.unique(objects)
    if not np.array_equal(distinct, np.arange(len(distinct))):
        message = "objects that are not numbered 0, 1, 2 … without a gap"
        return [Violation(Rule.OBJECTS, (), message)], 1
    together, apart = _live_together(problem, objects), _in_the_way(problem, offsets, objects)
    return [*together, *apart], len(together) + len(apart)


def _live_together(problem: Problem, objects: Ints) -> list[Violation]:
    """Neighbours in time of one object that are live together: if any two are, two neighbours are."""
    order = np.lexsort((problem.start, objects))
    one, other = order[:-1], order[1:]
    breaks = (objects[one] == objects[other]) & (problem.start[other] < problem.end[one])
    violations: list[Violation] = []
    for first, second in zip(one[breaks].tolist(), other[breaks].tolist(), strict=True):
        steps = int(problem.start[second]), int(min(problem.end[first], problem.end[second]))
        names = problem.names[first], problem.names[second]
        message = (
            f"{names[0]} and {names[1]} share object {int(objects[first])} "
            f"and are live together at steps {steps[0]}–{steps[1] - 1}"
        )
        violations.append(Violation(Rule.OBJECTS, names, message, steps))
    return violations


def _in_the_way(problem: Problem, offsets: Ints, objects: Ints) -> list[Violation]:
    """Objects that reach into the one below, each with a buffer of both."""
    count = int(objects.max(initial=-1)) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
    filled = problem.size > 0
    np.minimum.at(low, objects[filled], offsets[filled])
    np.maximum.at(high, objects[filled], (offsets + problem.size)[filled])
    violations: list[Violation] = []
    reach = -1
    # Objects without bytes come last, and reach into none.
    for chosen in np.argsort(low, kind="stable").tolist():
        if reach >= 0 and low[chosen] < high[reach]:
            top = np.flatnonzero(filled & (objects == reach) & (offsets + problem.size == high[reach]))
            bottom = np.flatnonzero(filled & (objects == chosen) & (offsets == low[chosen]))
            names = problem.names[top[0]], problem.names[bottom[0]]
            shared = int(low[chosen]), int(min(high[reach], high[chosen]))
            message = (
                f"object {chosen} with {names[1]} reaches into object {reach} with {names[0]} "
                f"in bytes {shared[0]}–{shared[1] - 1}"
            )
            violations.append(Violation(Rule.OBJECTS, names, message, byte_range=shared))
        if reach < 0 or high[chosen] > high[reach]:
            reach = chosen
    return violations
