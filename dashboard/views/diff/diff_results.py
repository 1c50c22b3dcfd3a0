"""What came of a comparison: what became of the arena, and why, and which buffers changed.

Figures that add up, the waterfall and the sentences of the diff; then the peak by module, and every buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import demand_waterfall, profiles_overlaid
from memplan_dashboard.session.messages import plain
from memplan_dashboard.views.diff.diff_columns import Comparison
from memplan_dashboard.widgets.controls import QUIET, trend
from memplan_dashboard.widgets.tables import MOST_ROWS, selectable, show_table, whole

from memplan_engine.analysis.buffer_names import without_module
from memplan_engine.diffing.moment import Cause
from memplan_engine.diffing.regression import Change, Diff
from memplan_engine.diffing.rows import DiffRow, ModuleRow, PeakRow
from memplan_engine.reporters.diff_culprits import story
from memplan_engine.reporters.diff_words import (
    change,
    counted_sentences,
    counts_sentence,
    figures,
    lifetimes,
    matched_sentence,
    moment_sentence,
    names,
    notes,
    peak_sentence,
    place,
    rewrite_rows,
    rewrite_sentence,
    sentence_case,
    warning,
)
from memplan_engine.units import format_bytes, format_percent, format_signed

DEMAND = "Peak live bytes: no planner can need less. When this grows, the model has changed."
PACKING = "The arena minus the peak live bytes. When this grows, the planner packs less tightly."


def show_headline(comparison: Comparison) -> None:
    """The verdict with the culprit, figures that add up, both profiles, and what Δdemand is made of."""
    diff, found = comparison.diff, comparison.explanation
    if told := warning(diff):
        st.warning(plain(sentence_case(told)), icon=":material/warning:")
    verdict, *parts = map(sentence_case, story(diff, found))
    if rewritten := rewrite_sentence(diff, comparison.rewritten):
        parts.append(sentence_case(rewritten))
    # One element, however much there is to say: what follows keeps its place.
    st.markdown("\n".join([f"#### {plain(verdict)}", *(f"- {plain(part)}" for part in parts)]))
    _figures(diff, comparison.buffers)
    if diff.same:
        return
    with st.container(key="halves_causes"):
        left, right = st.columns([1.35, 1], gap="medium")
    quiet = {"displayModeBar": False}
    profiles = profiles_overlaid.figure(profiles_overlaid.data(diff, found))
    left.plotly_chart(profiles, key="profiles_overlaid", config=quiet)
    right.plotly_chart(
        demand_waterfall.figure(demand_waterfall.data(diff)), key="demand_waterfall", config=quiet
    )
    st.caption(" ".join(plain(sentence_case(told)) for told in _beneath(diff)))


def _beneath(diff: Diff) -> list[str]:
    """Where the peaks are, what is compared, how much is matched, and what the figures count."""
    return [peak_sentence(diff), moment_sentence(diff), matched_sentence(diff), *notes(diff), *_beside(diff)]


def _beside(diff: Diff) -> list[str]:
    """What the ops hold beside the arenas, and what all these figures count."""
    told = [
        f"{what} {format_bytes(before)} → {format_bytes(after)}, {change(before, after)}"
        for what, before, after in figures(diff)[3:]
    ]
    return [*told, *counted_sentences(diff)]


def _figures(diff: Diff, buffers: int) -> None:
    arena, demand, packing = figures(diff)[:3]
    row = st.container(key="figures_diff").columns([1.7, 1.1, 1.1, 1, 1], gap="small")
    row[0].metric(
        "Arena, base → head",
        f"{format_bytes(arena[1])} → {format_bytes(arena[2])}",
        change(arena[1], arena[2]),
        **trend(diff.arena_delta),
    )
    for column, label, (_, before, after), told in (
        (row[1], "= Δ demand", demand, DEMAND),
        (row[2], "+ Δ packing loss", packing, PACKING),
    ):
        column.metric(
            label,
            format_signed(after - before),
            f"{format_bytes(before)} → {format_bytes(after)}",
            help=told,
            **QUIET,
        )
    row[3].metric(
        "Buffers changed",
        f"{diff.changed:,}",
        f"of {buffers:,}",
        help=sentence_case(counts_sentence(diff)),
        **QUIET,
    )
    row[4].metric(
        "Buffers matched",
        format_percent(diff.share),
        f"{format_percent(diff.bytes_share)} of the bytes",
        help="The share with a counterpart, by name, module, op kind, shape and order.",
        **QUIET,
    )


def show_rewritten(comparison: Comparison) -> None:
    """The ops that a rewrite changed between both sides."""
    told = sentence_case(rewrite_sentence(comparison.diff, comparison.rewritten))
    shown = comparison.rewritten[:MOST_ROWS]
    more = f" The first {MOST_ROWS:,} rows." if len(shown) < len(comparison.rewritten) else ""
    st.caption(plain(told + more))
    rows = pd.DataFrame(rewrite_rows(comparison.head.plan, shown))
    show_table(rows, whole("step before", "step after", "bytes"), key="rewritten")


INDENT = "\u2003"
BYTES = whole("change, bytes", "adds to Δ demand")
Choose = Callable[[int | None], None]


def show_peak(comparison: Comparison, selected: int | None, choose: Choose) -> None:
    """What the step that explains Δdemand holds on both sides, the largest difference first."""
    moment, (base, head) = comparison.diff.moment, comparison.problems
    both = f"{place(head, moment.head_step)} of head beside {place(base, moment.base_step)} of base"
    st.caption(plain(f"Live at {both}; rows with ▸ are sums over a module"))
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
        "change": format_signed(module.delta),
        "change, bytes": module.delta,
        "why": "",
        "source": "",
        "code": "",
    }


def _part_line(part: PeakRow) -> dict[str, object]:
    source = part.provenance.source
    return {
        "module and buffer": f"{INDENT}{INDENT}{without_module(part.label)}",
        "base": format_bytes(part.base_bytes) if part.base_bytes else "",
        "head": format_bytes(part.head_bytes) if part.head_bytes else "",
        "change": format_signed(part.delta),
        "change, bytes": part.delta,
        "why": str(part.cause or "same"),
        "source": str(source or ""),
        "code": (source.code if source else "").strip(),
    }


def _changes_table(rows: Sequence[DiffRow]) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "buffer": [names(row)[0] for row in rows],
            "in graph": [names(row)[1] for row in rows],
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
    silent = [name for name in ("module", "source") if table[name].eq("").all()]
    return table.drop(columns=[*silent, *["in graph"] * table["buffer"].equals(table["in graph"])])


def _scope(comparison: Comparison) -> str:
    """Changes with the files and the plans."""
    sides = comparison.base, comparison.head
    return "_".join(f"{side.document.key}_{side.plan.strategy}" for side in sides)
