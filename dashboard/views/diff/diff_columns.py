"""Two plans side by side, as the Diff page shows them: one number for each buffer of both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from memplan_dashboard.session.plan_facts import PlanFacts
from numpy.typing import NDArray

from memplan_engine import Problem, changes_by_buffer, diff, diff_markdown, diff_rows, module_rows
from memplan_engine.diffing.regression import CHANGES, Change, Diff
from memplan_engine.diffing.rows import DiffRow, ModuleRow

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What became of `base` in `head`.

    Each buffer has a number, the same on both sides where it is matched: the head's row, or for those that
    only the base has what follows the head's last row. `base_ids` has the numbers of the base's buffers.
    `names` of base and head go by number, "" for what is not there. `kinds` are the places in CHANGES by
    which the buffers of base and head are coloured; `masks` has a bit for every change of a buffer, its
    lifetime included.
    """

    base: PlanFacts
    head: PlanFacts
    diff: Diff
    base_ids: Ints
    names: tuple[list[str], list[str]]
    kinds: tuple[Ints, Ints]
    masks: tuple[Ints, Ints]

    @cached_property
    def changed(self) -> tuple[DiffRow, ...]:
        """Every buffer that changed."""
        return diff_rows(self.diff, unchanged=False)

    @cached_property
    def rows(self) -> tuple[DiffRow, ...]:
        """Every buffer."""
        return diff_rows(self.diff, unchanged=True)

    @cached_property
    def modules(self) -> tuple[ModuleRow, ...]:
        """The peak that explains Δdemand, by module."""
        return module_rows(self.diff, self.diff.moment)

    @cached_property
    def markdown(self) -> str:
        """The comment for a pull request."""
        return diff_markdown(self.diff)

    @property
    def buffers(self) -> int:
        """How many there are on both sides, each counted once."""
        return len(self.head.plan.problem) + self.diff.counts[Change.ONLY_BASE]

    @property
    def problems(self) -> tuple[Problem, Problem]:
        """What was planned: base, head."""
        return self.base.plan.problem, self.head.plan.problem

    def rows_of(self, number: int) -> tuple[int | None, int | None]:
        """The rows of a buffer in base and head; None where it is not there."""
        base = np.flatnonzero(self.base_ids == number)
        head = number if number < len(self.head.plan.problem) else None
        return (int(base[0]) if len(base) else None), head

    def find(self, base: str, head: str) -> int | None:
        """The number of the buffer with these names, "" for the side that does not have it."""
        if head:
            return self.head.document.index_of.get(head)
        row = self.base.document.index_of.get(base)
        return None if row is None else int(self.base_ids[row])

    def parse(self, text: str) -> int | None:
        """The number of "head:NAME" or "base:NAME"; None for what is not there."""
        side, _, name = text.partition(":")
        return self.find(name, "") if side == "base" else self.find("", name) if side == "head" else None

    def text_of(self, number: int) -> str:
        """What `parse` reads."""
        base, head = self.rows_of(number)
        if head is not None:
            return f"head:{self.head.plan.problem.names[head]}"
        return f"base:{self.base.plan.problem.names[base]}" if base is not None else ""


def compare_facts(base: PlanFacts, head: PlanFacts) -> Comparison:
    """Compare two plans: O(n log n), a million buffers in seconds."""
    compared = diff(base.plan, head.plan)
    rows = compared.matching.pairs
    base_ids = np.full(len(base.plan.problem), -1, dtype=np.int64)
    base_ids[rows[0]] = rows[1]
    alone = np.flatnonzero(base_ids < 0)
    base_ids[alone] = len(head.plan.problem) + np.arange(len(alone))
    kinds = changes_by_buffer(compared)
    masks = 1 << kinds[0], 1 << kinds[1]
    for change, moved in ((Change.LONGER, compared.lived > 0), (Change.SHORTER, compared.lived < 0)):
        for mask, side in zip(masks, rows, strict=True):
            mask[side[moved]] |= bit(change)
    return Comparison(base, head, compared, base_ids, _names(base, head, base_ids), kinds, masks)


def _names(base: PlanFacts, head: PlanFacts, base_ids: Ints) -> tuple[list[str], list[str]]:
    after = list(head.plan.problem.names)
    count = max(len(after), int(base_ids.max(initial=-1)) + 1)
    before = [""] * count
    for number, name in zip(base_ids.tolist(), base.plan.problem.names, strict=True):
        before[number] = name
    return before, after + [""] * (count - len(after))


def bit(change: Change) -> int:
    """The bit of a change in `Comparison.masks`."""
    return 1 << CHANGES.index(change)


def parse_kinds(text: str) -> tuple[Change, ...]:
    """The changes that "grown,longer" names; what names none is left out."""
    wanted = {part.strip().upper() for part in text.split(",")}
    return tuple(change for change in CHANGES if change.name in wanted)


def kinds_text(kinds: tuple[Change, ...]) -> str:
    """What `parse_kinds` reads."""
    return ",".join(change.name.lower() for change in kinds)
