"""Two plans → why the arena of one is larger than that of the other.

Δarena = Δdemand + Δpacking loss, where demand is LOAD, the most live bytes at a step, and packing loss is
what the arena takes beyond it. Δdemand is explained buffer by buffer at the larger of the two peaks. Beside
the arena, Δtotal = Δarena + Δworkspace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from memplan_engine.diffing.matching import RELATED, Matching, match_buffers
from memplan_engine.diffing.moment import (
    Cause,
    Moment,
    Timeline,
    compare_moments,
    counterpart,
    lifetime_changes,
    match_steps,
)
from memplan_engine.errors import InputError
from memplan_engine.plan import Plan
from memplan_engine.problem import Ints
from memplan_engine.profile import Held, Load, held_bytes, load_of
from memplan_engine.units import UNITS_TAKEN, format_bytes, parse_bytes


class Change(StrEnum):
    """What became of a buffer. One that changed in size and in lifetime counts under both."""

    ONLY_BASE = "only in base"
    ONLY_HEAD = "only in head"
    GROWN = "grown"
    SHRUNK = "shrunk"
    LONGER = "longer-lived"
    SHORTER = "shorter-lived"
    SAME = "same"


CHANGES = tuple(Change)


@dataclass(frozen=True, slots=True, eq=False)
class Diff:
    """What changed from `base` to `head`; all byte counts are exact, and deltas are head minus base.

    `lived` is above 0 for each pair of `matching.pairs` that lives longer in the head, below 0 for those that
    live shorter. `base_moment` is the base's peak beside the step of the head that stands for it,
    `head_moment` the head's peak beside the step of the base that stands for it.
    """

    base: Plan
    head: Plan
    base_load: Load
    head_load: Load
    matching: Matching
    timeline: Timeline
    lived: Ints
    base_moment: Moment
    head_moment: Moment

    @property
    def base_held(self) -> Held:
        """What the base holds with the scratch of its ops."""
        return held_bytes(self.base.problem, self.base_load.sections, self.base_load.live)

    @property
    def head_held(self) -> Held:
        """What the head holds with the scratch of its ops."""
        return held_bytes(self.head.problem, self.head_load.sections, self.head_load.live)

    @property
    def arena_delta(self) -> int:
        """Δarena: what has to be allocated in addition."""
        return self.head.arena_bytes - self.base.arena_bytes

    @property
    def demand_delta(self) -> int:
        """Δdemand: by how much the peak of the live bytes rose."""
        return self.head_load.peak - self.base_load.peak

    @property
    def packing_delta(self) -> int:
        """Δpacking loss: by how much the arenas beyond these peaks differ."""
        return self.arena_delta - self.demand_delta

    @property
    def workspace_delta(self) -> int:
        """By how much the workspaces differ: what ops hold for themselves beside the arena."""
        return self.head.workspace_bytes - self.base.workspace_bytes

    @property
    def total_delta(self) -> int:
        """Δtotal = Δarena + Δworkspace."""
        return self.arena_delta + self.workspace_delta

    @property
    def has_workspaces(self) -> bool:
        """Whether a side needs anything beside its arena."""
        return bool(self.base.workspace_bytes or self.head.workspace_bytes)

    @property
    def same_scope(self) -> bool:
        """Whether both sides count the same: where one of them does not know its temporaries, only the arenas
        can be compared."""
        return self.base.problem.scope is self.head.problem.scope

    @property
    def judged(self) -> tuple[int, int]:
        """The bytes of base and head that a limit looks at: all that is counted, or the arenas where the
        scopes differ."""
        if self.same_scope:
            return self.base.total_bytes, self.head.total_bytes
        return self.base.arena_bytes, self.head.arena_bytes

    @property
    def moment(self) -> Moment:
        """Where Δdemand is explained: at the head's peak where demand rose, at the base's where it fell."""
        return self.base_moment if self.demand_delta < 0 else self.head_moment

    @property
    def causes(self) -> dict[Cause, int]:
        """Δdemand by cause, bytes: together with `elsewhere` they sum to it."""
        return self.moment.causes

    @property
    def elsewhere(self) -> int:
        """What is left of Δdemand: the other side's peak is at another step. Never above 0 where demand rose:
        the base had room below its own peak there; never below 0 where demand fell."""
        return self.demand_delta - self.moment.delta

    @property
    def peak_moved(self) -> bool:
        """Whether the head's peak is at another op than the base's."""
        return self.head_moment.base_step != self.base_load.peak_step

    @property
    def counts(self) -> dict[Change, int]:
        """How many buffers changed how; one that grew and lives longer counts twice."""
        pairs = self.matching.pairs
        grown = self.head.problem.size[pairs[1]] - self.base.problem.size[pairs[0]]
        return {
            Change.ONLY_BASE: len(self.matching.head_of) - len(pairs[0]),
            Change.ONLY_HEAD: len(self.matching.base_of) - len(pairs[0]),
            Change.GROWN: int((grown > 0).sum()),
            Change.SHRUNK: int((grown < 0).sum()),
            Change.LONGER: int((self.lived > 0).sum()),
            Change.SHORTER: int((self.lived < 0).sum()),
            Change.SAME: int(((grown == 0) & (self.lived == 0)).sum()),
        }

    @property
    def changed(self) -> int:
        """How many buffers changed in any way, those that only one side has included."""
        return len(self.matching.head_of) + self.counts[Change.ONLY_HEAD] - self.counts[Change.SAME]

    @property
    def share(self) -> float:
        """The share of all buffers that have a match."""
        return self.matching.share

    @property
    def bytes_share(self) -> float:
        """The same by size: matched bytes over all bytes of both sides."""
        sizes = self.base.problem.size, self.head.problem.size
        every = sum(int(size.sum()) for size in sizes)
        matched = sum(int(size[rows].sum()) for size, rows in zip(sizes, self.matching.pairs, strict=True))
        return matched / every if every else 1.0

    @property
    def related(self) -> bool:
        """Whether enough is matched for the rest of this to mean something."""
        return self.share >= RELATED

    @property
    def same(self) -> bool:
        """Whether nothing changed at all."""
        deltas = self.arena_delta, self.demand_delta, self.workspace_delta
        return not self.changed and not any(deltas)

    @property
    def percent(self) -> float | None:
        """Δarena over the base's arena, 0.05 for 5 %; None where that has no bytes."""
        return self.arena_delta / self.base.arena_bytes if self.base.arena_bytes else None


def diff(base: Plan, head: Plan) -> Diff:
    """What changed from `base` to `head`, and why the arena did: O(n log n), a million buffers in seconds.

    Any two plans can be compared; where less than a quarter of their buffers is matched, `Diff.related` is
    False: then they are plans of different things.
    """
    problems = base.problem, head.problem
    loads = load_of(problems[0]), load_of(problems[1])
    matching = match_buffers(*problems)
    timeline = match_steps(*problems, matching)
    peaks = loads[0].peak_step, loads[1].peak_step
    base_step, head_footing = counterpart(peaks[1], timeline, loads[0])
    head_step, base_footing = counterpart(peaks[0], timeline.mirrored, loads[1])
    return Diff(
        base,
        head,
        *loads,
        matching,
        timeline,
        lifetime_changes(*problems, matching, timeline),
        compare_moments(problems[0], peaks[0], problems[1], head_step, matching, base_footing),
        compare_moments(problems[0], base_step, problems[1], peaks[1], matching, head_footing),
    )


def changes_by_buffer(found: Diff) -> tuple[Ints, Ints]:
    """The place in CHANGES of what became of each buffer of the base and of the head, for colouring: its
    size where that changed, else its lifetime."""
    base, head = found.base.problem, found.head.problem
    rows = found.matching.pairs
    grown = head.size[rows[1]] - base.size[rows[0]]
    rules = (
        (Change.GROWN, grown > 0),
        (Change.SHRUNK, grown < 0),
        (Change.LONGER, found.lived > 0),
        (Change.SHORTER, found.lived < 0),
    )
    paired = np.select(
        [rule for _, rule in rules],
        [CHANGES.index(change) for change, _ in rules],
        CHANGES.index(Change.SAME),
    )
    of_base = np.full(len(base), CHANGES.index(Change.ONLY_BASE), dtype=np.int64)
    of_head = np.full(len(head), CHANGES.index(Change.ONLY_HEAD), dtype=np.int64)
    of_base[rows[0]], of_head[rows[1]] = paired, paired
    return of_base, of_head


_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a plan may grow: `nbytes`, or `percent` of the base. What counts is the arena with its
    workspace; the arena alone where the two sides do not count the same (`Diff.judged`)."""

    nbytes: int = 0
    percent: Fraction | None = None

    def allowed(self, diff: Diff) -> int:
        """The bytes by which the head of `diff` may be larger."""
        return self.allowed_of(diff.judged[0])

    def allowed_of(self, base: int) -> int:
        """The bytes by which what takes `base` bytes may grow."""
        return self.nbytes if self.percent is None else int(self.percent * base / 100)

    def exceeded(self, diff: Diff) -> bool:
        """Whether it grew by more than that; by just as much is allowed."""
        return self.growth(diff) > self.allowed(diff)

    def growth(self, diff: Diff) -> int:
        """By how many bytes it grew."""
        base, head = diff.judged
        return head - base

    def __str__(self) -> str:
        return format_bytes(self.nbytes) if self.percent is None else f"{float(self.percent):g} %"


def parse_limit(text: str, source: str = "--fail-above") -> Limit:
    """ "5%", "10MiB", "1048576" → a limit; raises InputError naming `source` for anything else."""
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return Limit(percent=Fraction(percent[1]))
    try:
        return Limit(parse_bytes(text, source))
    except InputError as error:
        expected = f"a share as in 5%, bytes, or {UNITS_TAKEN}"
        raise InputError(source, "", error.found, expected) from None
