"""One step of the base beside one of the head: what each holds there, and what makes the difference."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memplan_engine.diffing.matching import Matching, values_of
from memplan_engine.diffing.timeline import Timeline
from memplan_engine.kernels.alignment import NOBODY
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Load, bytes_held


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
    """A step of the base and a step of the head that stand for each other, with what is alive there.

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
        return {cause: int(deltas[self.cause == place].sum()) for place, cause in enumerate(CAUSES)}


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
    alive = np.flatnonzero((before > 0) | (after > 0))
    order = alive[np.lexsort((-after[alive], -np.abs(after - before)[alive]))]
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
