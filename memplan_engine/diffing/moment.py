"""Steps of the base beside steps of the head: which stand for each other, what each holds, what differs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from memplan_engine.diffing.matching import Matching, match_things, values_of
from memplan_engine.diffing.traits import Flags, ops_of
from memplan_engine.kernels.alignment import NOBODY, longest_increasing
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Load, bytes_held

SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The pairs of steps at which the same thing happens on both sides: the same op runs, or, without
    graphs, the same buffer starts.

    `base` and `head` are those pairs that keep the order, strictly increasing. `all_base` and `all_head` are
    all pairs, in the order of head: ops may have changed places.
    """

    base: Ints
    head: Ints
    all_base: Ints
    all_head: Ints

    @property
    def mirrored(self) -> Timeline:
        """The same with the sides exchanged."""
        order = np.lexsort((self.all_head, self.all_base))
        return Timeline(self.head, self.base, self.all_head[order], self.all_base[order])

    def base_of(self, step: int) -> Ints:
        """The base's steps at which something happens that happens at `step` of the head."""
        low, high = np.searchsorted(self.all_head, [step, step + 1])
        return self.all_base[low:high]

    def around(self, step: int) -> tuple[int, int]:
        """The base's steps of the last anchor at or before `step` of the head and the first one at or after
        it; NOBODY where there is none."""
        after = int(np.searchsorted(self.head, step))
        before = int(np.searchsorted(self.head, step, side="right")) - 1
        return (
            int(self.base[before]) if before >= 0 else NOBODY,
            int(self.base[after]) if after < len(self.base) else NOBODY,
        )

    def to_base(self, steps: Ints) -> Ints:
        """The base's step for each of the head's `steps`: between two anchors in proportion, outside of them
        at the same distance from the first or the last one. For drawing; may lie outside the base."""
        if not len(self.head):
            return steps
        inside = np.interp(steps, self.head, self.base)
        before, behind = steps - self.head[0] + self.base[0], steps - self.head[-1] + self.base[-1]
        moved = np.where(steps < self.head[0], before, np.where(steps > self.head[-1], behind, inside))
        return np.floor(moved).astype(np.int64)


def match_steps(base: Problem, head: Problem, buffers: Matching) -> Timeline:
    """The timeline of two problems whose buffers are matched: by ops where both have graphs, else by the
    starts of the buffers."""
    if base.origin is not None and head.origin is not None:
        ops = match_things(ops_of(base.origin), ops_of(head.origin))
        sides = zip((base.origin, head.origin), ops.pairs, strict=True)
        steps = [np.array(origin.schedule.step_of_op, dtype=np.int64)[rows] for origin, rows in sides]
    else:
        rows = buffers.pairs
        steps = [base.start[rows[0]], head.start[rows[1]]]
    # Of several at one step, one at most is taken: falling base steps cannot increase.
    order = np.lexsort((-steps[0], steps[1]))
    at_base, at_head = (column[order] for column in steps)
    kept = longest_increasing(at_base)
    return Timeline(at_base[kept], at_head[kept], at_base, at_head)


def lifetime_changes(base: Problem, head: Problem, buffers: Matching, timeline: Timeline) -> Ints:
    """For each pair of `buffers.pairs`: above 0 where the head's buffer lives longer than the base's, below 0
    where it lives shorter, else 0.

    Steps are compared by the anchors that lie before them: an op inserted anywhere makes no lifetime longer
    by itself. Between the same two anchors steps count as equal, unless they can be counted off against each
    other: then they are as far from their anchor as they are.
    """
    rows = buffers.pairs
    free = _free(base, head, timeline)
    begin, end = (
        _later(base_steps, head_steps, timeline, free)
        for base_steps, head_steps in (
            (base.start[rows[0]], head.start[rows[1]]),
            (base.end[rows[0]] - 1, head.end[rows[1]] - 1),
        )
    )
    return end - begin


def _later(base: Ints, head: Ints, timeline: Timeline, free: Flags) -> Ints:
    """How much later the head's steps are than the base's: in anchors, twice as many, or within one stretch
    that is `free` 1 for later and −1 for earlier."""
    places = []
    for steps, anchors in ((base, timeline.base), (head, timeline.head)):
        places.append(np.searchsorted(anchors, steps) + np.searchsorted(anchors, steps, side="right"))
    later = places[1] - places[0]
    stretch = (places[0] + 1) // 2
    first = np.maximum(stretch - 1, 0)
    if not len(timeline.base):
        return np.sign(head - base) if free[0] else later
    distance = (head - timeline.head[first]) - (base - timeline.base[first])
    return np.where((later == 0) & (places[0] % 2 == 0) & free[stretch], np.sign(distance), later)


def _free(base: Problem, head: Problem, timeline: Timeline) -> Flags:
    """For each stretch (before, between and behind the anchors) whether its steps can be counted off against
    each other: there are as many on both sides, or, without graphs, nothing else starts in it."""
    lengths = [
        np.diff(anchors, prepend=0, append=problem.steps)
        for problem, anchors in ((base, timeline.base), (head, timeline.head))
    ]
    equal: Flags = lengths[0] == lengths[1]
    if base.origin is not None and head.origin is not None:
        return equal
    quiet = np.ones(len(timeline.base) + 1, dtype=np.bool_)
    for problem, anchors in ((base, timeline.base), (head, timeline.head)):
        before, upto = (np.searchsorted(anchors, problem.start, side=side) for side in SIDES)
        quiet[before[before == upto]] = False
    return equal | quiet


class Cause(StrEnum):
    """Why a step of the head holds more or less than the base's step that it stands for."""

    LARGER = "larger tensors"
    NEW = "new tensors"
    LONGER = "longer lifetimes"
    SMALLER = "smaller tensors"
    GONE = "tensors gone"
    SHORTER = "shorter lifetimes"


CAUSES = tuple(Cause)


class Footing(StrEnum):
    """What says that two steps stand for each other."""

    SAME_OP = "the same op"
    SAME_STRETCH = "the fullest step between the same ops"
    NOTHING = "no op is matched: the peaks themselves"


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A step of the base and a step of the head that stand for each other, with what is live there.

    An entry for each buffer that holds bytes on either side, by falling difference: its row in `base` and in
    `head` (NOBODY where it has none), the bytes that it holds there, and the place in CAUSES of what makes
    them differ (NOBODY where they do not). The differences sum to `delta`, and so do `causes`.
    """

    base_step: int
    head_step: int
    footing: Footing
    base: Ints
    head: Ints
    base_held: Ints
    head_held: Ints
    cause: Ints

    @property
    def base_bytes(self) -> int:
        """Live bytes at the base's step."""
        return int(self.base_held.sum())

    @property
    def head_bytes(self) -> int:
        """Live bytes at the head's step."""
        return int(self.head_held.sum())

    @property
    def delta(self) -> int:
        """How many bytes more the head holds."""
        return self.head_bytes - self.base_bytes

    @property
    def causes(self) -> dict[Cause, int]:
        """The difference in bytes by cause: all of them, 0 where there is none."""
        deltas = self.head_held - self.base_held
        return {cause: int(deltas[self.cause == index].sum()) for index, cause in enumerate(CAUSES)}


def counterpart(step: int, timeline: Timeline, base: Load) -> tuple[int, Footing]:
    """The base's step that stands for `step` of the head: where the same op runs, or, when that is new, the
    fullest step between the ops around it that are not. Of several, the fullest."""
    same = timeline.base_of(step)
    if len(same):
        return max(same.tolist(), key=base.at), Footing.SAME_OP
    before, after = timeline.around(step)
    if before == after == NOBODY:
        return base.peak_step, Footing.NOTHING
    last = after if after != NOBODY else base.steps - 1
    return base.fullest(max(before, 0), max(before, last)), Footing.SAME_STRETCH


def compare_moments(
    base: Problem, base_step: int, head: Problem, head_step: int, buffers: Matching, footing: Footing
) -> Moment:
    """What `base` holds at `base_step` beside what `head` holds at `head_step`."""
    held = bytes_held(base, base_step), bytes_held(head, head_step)
    rows = buffers.rows
    before, after = values_of(held[0], rows[0]), values_of(held[1], rows[1])
    cause = _causes(rows[0], rows[1], before, after)
    live = np.flatnonzero((before > 0) | (after > 0))
    order = live[np.lexsort((-after[live], -np.abs(after - before)[live]))]
    columns = (column[order] for column in (*rows, before, after, cause))
    return Moment(base_step, head_step, footing, *columns)


def _causes(base: Ints, head: Ints, before: Ints, after: Ints) -> Ints:
    """The place in CAUSES of each entry: rows on both sides, bytes on both sides."""
    rules = (
        (Cause.NEW, (base == NOBODY) & (after > 0)),
        (Cause.GONE, (head == NOBODY) & (before > 0)),
        (Cause.LONGER, (before == 0) & (after > 0)),
        (Cause.SHORTER, (before > 0) & (after == 0)),
        (Cause.LARGER, before < after),
        (Cause.SMALLER, before > after),
    )
    return np.select([rule for _, rule in rules], [CAUSES.index(cause) for cause, _ in rules], NOBODY)
