"""A comparison as two panels of the rectangle chart: colours, patterns, switches, differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from memplan_dashboard.plan_view import PATTERNS, Difference, Filter, Panel
from memplan_dashboard.views.diff.diff_columns import Comparison, bit
from memplan_dashboard.widgets.plan_panels import make_panel
from numpy.typing import NDArray

from memplan_engine import Problem, profile_difference
from memplan_engine.analysis.claims import workspace_name
from memplan_engine.diffing.regression import CHANGES, Change
from memplan_engine.plotting.colouring import OTHER, Colouring

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
                title=f"{side}: {_name(facts.plan.problem)}",
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


def _name(problem: Problem) -> str:
    return problem.name or "unnamed"
