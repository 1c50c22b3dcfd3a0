"""Two plans side by side, as the Diff page shows them: one number for each buffer of both, and two panels.

The panels have colours, patterns, switches and a strip of differences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import streamlit as st
from memplan_dashboard.plan_view import PATTERNS, Difference, Filter, Panel
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.plan_panels import make_panel
from numpy.typing import NDArray

from memplan_engine import (
    Explanation,
    Problem,
    changes_by_buffer,
    diff,
    diff_markdown,
    diff_rows,
    explain,
    module_rows,
    profile_difference,
)
from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.claims import workspace_name
from memplan_engine.diffing.regression import CHANGES, Change, Diff
from memplan_engine.diffing.rewritten import RewrittenOp, rewritten_ops
from memplan_engine.diffing.rows import DiffRow, ModuleRow
from memplan_engine.plotting.colouring import OTHER, Colouring

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What became of `base` in `head`.

    Each buffer has a number, the same on both sides where it is matched: the head's row, or for those that
    only the base has what follows the head's last row. `base_ids` has the numbers of the base's buffers.
    `names` of base and head, module first where it is known, go by number, "" for what is not there. `kinds`
    are the places in CHANGES by which the buffers of base and head are coloured; `masks` has a bit for every
    change of a buffer, its lifetime included.
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
    def explanation(self) -> Explanation:
        """Who is to blame for the change of the peak."""
        return explain(self.diff)

    @cached_property
    def rewritten(self) -> tuple[RewrittenOp, ...]:
        """What a rewrite changed, where both sides are the same ops."""
        return rewritten_ops(self.diff.base, self.diff.head)

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


# By identity: an entry holds its facts, so that their ids cannot become another's.
@st.cache_resource(max_entries=12, show_spinner="Comparing …", hash_funcs={PlanFacts: id})
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
    after = list(buffer_names(head.plan.problem))
    count = max(len(after), int(base_ids.max(initial=-1)) + 1)
    before = [""] * count
    for number, name in zip(base_ids.tolist(), buffer_names(base.plan.problem), strict=True):
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


ORANGE, BLUE, PURPLE = ("#EE7733", "#F28F56"), ("#4477AA", "#6FA3DB"), ("#AA3377", "#D06BA6")
YELLOW, CYAN = ("#CCBB44", "#D6C75E"), ("#66CCEE", "#66CCEE")
LOOKS = {
    Change.ONLY_BASE: (PURPLE, "dots"),
    Change.ONLY_HEAD: (PURPLE, "dots"),
    Change.GROWN: (ORANGE, "rising"),
    Change.SHRUNK: (BLUE, "falling"),
    Change.LONGER: (YELLOW, "upright"),
    Change.SHORTER: (CYAN, "level"),
    Change.SAME: (OTHER, ""),
}
"""A colour and a pattern each, of Paul Tol's bright and vibrant schemes."""
BOTH = tuple(product((Change.GROWN, Change.SHRUNK), (Change.LONGER, Change.SHORTER)))
"""Changes of size and lifetime at once: the colour of the one with the patterns of both."""
PALETTE = (*(LOOKS[change][0] for change in CHANGES), *(LOOKS[size][0] for size, _ in BOTH))
PATTERN = (
    *(PATTERNS.get(LOOKS[change][1], 0) for change in CHANGES),
    *(PATTERNS[LOOKS[size][1]] + PATTERNS[LOOKS[life][1]] for size, life in BOTH),
)
SHOWN_FIRST = (
    Change.GROWN,
    Change.SHRUNK,
    Change.ONLY_HEAD,
    Change.ONLY_BASE,
    Change.LONGER,
    Change.SHORTER,
    Change.SAME,
)


def diff_panels(comparison: Comparison, kinds: tuple[Change, ...]) -> list[Panel]:
    """Base and head; with `kinds` all that changed otherwise is faded."""
    ids = comparison.base_ids, np.arange(len(comparison.problems[1]))
    panels = []
    for place, (side, facts) in enumerate((("base", comparison.base), ("head", comparison.head))):
        mask = comparison.masks[place]
        colouring = Colouring(_colours(comparison.kinds[place], mask), PALETTE, ())
        panel = make_panel(facts, colouring, _dimmed(mask, kinds))
        owner = ids[place] if panel.owner is None else ids[place][panel.owner]
        panels.append(
            replace(
                panel,
                title=f"{side}: {facts.plan.problem.name or 'unnamed'}",
                subtitle=f"{panel.subtitle} · {facts.plan.strategy}",
                owner=owner.astype(np.int32),
                names=comparison.names[place],
                buffers=len(facts.plan.problem),
            )
        )
    return panels


def filters(comparison: Comparison, kinds: tuple[Change, ...]) -> list[Filter]:
    """A switch for each change, with how many buffers changed so."""
    counts = comparison.diff.counts
    return [
        Filter(str(change), CHANGES.index(change), counts[change], change in kinds) for change in SHOWN_FIRST
    ]


def difference_strip(comparison: Comparison) -> Difference:
    """The difference of the live bytes on the head's steps."""
    profile = profile_difference(comparison.diff)
    without = f" without {workspace_name(comparison.diff.head.problem)}" * comparison.diff.has_workspaces
    return Difference(
        f"live bytes{without}, head minus base, on the head's steps",
        profile.bounds,
        profile.base,
        profile.head,
        comparison.diff.head_load.peak_step,
        CHANGES.index(Change.GROWN),
        CHANGES.index(Change.SHRUNK),
    )


def toggled(kinds: tuple[Change, ...], label: str) -> tuple[Change, ...]:
    """`kinds` with the one of this label switched."""
    return tuple(change for change in CHANGES if (change in kinds) != (str(change) == label))


def _colours(kinds: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.uint8]:
    colours = kinds.astype(np.uint8)
    for place, (size, life) in enumerate(BOTH, len(CHANGES)):
        colours[(mask & bit(size) != 0) & (mask & bit(life) != 0)] = place
    return colours


def _dimmed(mask: NDArray[np.int64], kinds: tuple[Change, ...]) -> NDArray[np.bool_] | None:
    return (mask & sum(bit(kind) for kind in kinds)) == 0 if kinds else None
