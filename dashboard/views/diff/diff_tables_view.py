"""The tables of a comparison: the peak by module, and every buffer that changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st
from memplan_dashboard.session.messages import plain
from memplan_dashboard.views.diff.diff_columns import Comparison
from memplan_dashboard.widgets.tables import MOST_ROWS, selectable, whole

from memplan_engine.diffing.moment import Cause
from memplan_engine.diffing.regression import Change
from memplan_engine.diffing.rows import DiffRow, ModuleRow, PeakRow
from memplan_engine.reporters.diff_words import lifetimes, names, place, signed
from memplan_engine.units import format_bytes

INDENT = "\u2003"
BYTES = whole("change, bytes", "adds to Δ demand")
Choose = Callable[[int | None], None]


def show_peak(comparison: Comparison, selected: int | None, choose: Choose) -> None:
    """What the step that explains Δdemand holds on both sides, the largest difference first."""
    moment, (base, head) = comparison.diff.moment, comparison.problems
    both = f"{place(head, moment.head_step)} of head beside {place(base, moment.base_step)} of base"
    st.caption(plain(f"Alive at {both}; rows with ▸ are sums over a module"))
    table, things = _peak_table(comparison)
    if len(things) == MOST_ROWS:
        st.caption(f"The first {MOST_ROWS:,} rows; the JSON has all of them.")
    selectable(table, things, selected, "diff_peak", _scope(comparison), choose, BYTES)


def show_changes(
    comparison: Comparison, kinds: tuple[Change, ...], selected: int | None, choose: Choose
) -> None:
    """Every buffer that changed, or all with one of `kinds`: what adds most to Δdemand first."""
    rows = comparison.rows if Change.SAME in kinds else comparison.changed
    if kinds:
        rows = tuple(row for row in rows if not set(kinds).isdisjoint(row.changes))
    shown = rows[:MOST_ROWS]
    more = f"The first {MOST_ROWS:,} of {len(rows):,}" if len(rows) > len(shown) else f"{len(rows):,}"
    only = f", only those that are {' or '.join(kinds)}" if kinds else ""
    st.caption(plain(f"{more} buffer{'s' * (len(rows) != 1)}{only}, by what they add to Δ demand"))
    if not shown:
        return
    table = _changes_table(shown)
    things = [comparison.find(row.base, row.head) for row in shown]
    selectable(table, things, selected, "diff_rows", _scope(comparison), choose, BYTES)


def _peak_table(comparison: Comparison) -> tuple[pd.DataFrame, list[int | None]]:
    lines: list[dict[str, object]] = []
    things: list[int | None] = []
    for module in comparison.modules:
        if len(lines) >= MOST_ROWS:
            break
        lines.append(_module_line(module))
        things.append(None)
        for part in module.parts[: MOST_ROWS - len(lines)]:
            lines.append(_part_line(part))
            gone = part.cause is Cause.GONE
            things.append(comparison.find(part.name if gone else "", "" if gone else part.name))
    return pd.DataFrame(lines), things


def _module_line(module: ModuleRow) -> dict[str, object]:
    count = len(module.parts)
    return {
        "module and buffer": f"▸ {module.module or '(no module)'} ({count} buffer{'s' * (count != 1)})",
        "base": format_bytes(module.base_bytes),
        "head": format_bytes(module.head_bytes),
        "change": signed(module.delta),
        "change, bytes": module.delta,
        "why": "",
        "source": "",
        "code": "",
    }


def _part_line(part: PeakRow) -> dict[str, object]:
    source = part.provenance.source
    return {
        "module and buffer": f"{INDENT}{INDENT}{part.name}",
        "base": format_bytes(part.base_bytes) if part.base_bytes else "",
        "head": format_bytes(part.head_bytes) if part.head_bytes else "",
        "change": signed(part.delta),
        "change, bytes": part.delta,
        "why": str(part.cause or "same"),
        "source": str(source or ""),
        "code": (source.code if source else "").strip(),
    }


def _changes_table(rows: Sequence[DiffRow]) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "buffer": [names(row) for row in rows],
            "what": [", ".join(row.changes) for row in rows],
            "base": [format_bytes(row.base_bytes) if row.base else "" for row in rows],
            "head": [format_bytes(row.head_bytes) if row.head else "" for row in rows],
            "change, bytes": [row.delta for row in rows],
            "adds to Δ demand": [row.at_peak for row in rows],
            "lifetime": [lifetimes(row) for row in rows],
            "module": [row.provenance.module for row in rows],
            "source": [str(row.provenance.source or "") for row in rows],
            "kind": [row.provenance.kind for row in rows],
        }
    )
    return table.drop(columns=[name for name in ("module", "source") if table[name].eq("").all()])


def _scope(comparison: Comparison) -> str:
    """Changes with the files and the plans."""
    sides = comparison.base, comparison.head
    return "_".join(f"{side.document.key}_{side.plan.strategy}" for side in sides)
