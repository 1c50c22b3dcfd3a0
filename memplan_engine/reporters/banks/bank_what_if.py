"""What another capacity of a bank, or edits, change in a plan over several banks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType

from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.reporters.banks.bank_tables import bank_summary, cost_text, plan_summary, verdict_words
from memplan_engine.reporters.rich_tables import MOST_ROWS, folded, make_table, more, numbers, plain_text
from memplan_engine.reporters.what_if_tables import edit_entry
from memplan_engine.units import format_bytes, format_percent
from memplan_engine.what_if.edits import Edit


def compared_summary(before: BankedPlan, after: BankedPlan, edits: Sequence[Edit]) -> dict[str, Any]:
    """The edits, both plans, and who lives elsewhere now."""
    moved = moved_buffers(before, after)
    return {
        "edits": [edit_entry(edit) for edit in edits],
        "before": plan_summary(before),
        "after": plan_summary(after),
        "moved": [{"name": name, "from": one, "to": other} for name, one, other in moved],
    }


def compared_tables(before: BankedPlan, after: BankedPlan, all_rows: bool = False) -> list[RenderableType]:
    """Two plans over banks of the same names side by side, and who moved."""
    rows: list[tuple[str, ...]] = []
    for name in after.banks.names:
        one, other = (
            bank_summary(plan, plan.banks.names.index(name)) if name in plan.banks.names else None
            for plan in (before, after)
        )
        rows += [
            (
                f"{name}, {key}",
                _bytes_text(one, f"{key}_bytes"),
                _bytes_text(other, f"{key}_bytes"),
            )
            for key in ("capacity", "arena")
        ]
    rows.append(("traffic", cost_text(before, before.traffic), cost_text(after, after.traffic)))
    gaps = (before.gap, after.gap)
    rows.append(("over its bound", *(format_percent(gap) if np.isfinite(gap) else "" for gap in gaps)))
    table = make_table(("", *numbers("before", "after")), rows)
    moved = moved_buffers(before, after)
    shown = moved if all_rows else moved[:MOST_ROWS]
    parts: list[RenderableType] = [table, plain_text(verdict_words(after))]
    if moved:
        parts.append(make_table(folded("moved", "from", "to"), shown, rest=more(moved, shown)))
    return parts


def moved_buffers(before: BankedPlan, after: BankedPlan) -> list[tuple[str, str, str]]:
    """(buffer, bank before, bank after) of those that are in both and live elsewhere."""
    homes = {
        name: before.banks.names[bank]
        for name, bank in zip(before.problem.names, before.bank_of.tolist(), strict=True)
    }
    return [
        (name, homes[name], after.banks.names[bank])
        for name, bank in zip(after.problem.names, after.bank_of.tolist(), strict=True)
        if name in homes and homes[name] != after.banks.names[bank]
    ]


def _bytes_text(summary: dict[str, Any] | None, key: str) -> str:
    value = None if summary is None else summary[key]
    return "" if value is None else format_bytes(value)
