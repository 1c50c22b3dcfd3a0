"""The row of figures above the chart, the certificate, and what the validator says."""

from __future__ import annotations

import streamlit as st

from memplan_engine import Plan, Role, make_profile, validate
from memplan_engine.graph import storage_bytes
from memplan_engine.provenance import ops_at
from memplan_engine.tables import certificate, saved
from memplan_engine.units import format_bytes, format_percent


def show_figures(plan: Plan, budget: int | None) -> None:
    """Arena, bound, peak, holes, saving and budget of `plan`."""
    profile = make_profile(plan.problem, plan.offsets)
    section = profile.sections.at(profile.peak_step)
    holes = int(profile.holes[section]) if len(profile.holes) else 0
    ops = ops_at(plan.problem, profile.peak_step)
    row = st.columns(6 if budget else 5, gap="small")
    over = "meets the bound" if plan.optimal else f"+{format_percent(plan.gap)} over bound"
    row[0].metric(
        "Arena", format_bytes(plan.arena_bytes), over, delta_color=_tone(plan.optimal), delta_arrow="off"
    )
    row[1].metric(
        "Lower bound",
        format_bytes(plan.bound.nbytes),
        str(plan.bound.kind),
        delta_color="off",
        delta_arrow="off",
    )
    row[2].metric(
        "Peak step",
        f"{profile.peak_step:,}",
        ops[0].name if ops else None,
        delta_color="off",
        delta_arrow="off",
    )
    row[3].metric("Holes at peak", format_bytes(holes))
    row[4].metric(
        "Saved",
        format_percent(saved(plan)),
        f"naive {format_bytes(plan.naive_bytes)}",
        delta_color="off",
        delta_arrow="off",
    )
    if budget:
        room = budget - plan.arena_bytes
        row[5].metric(
            "Budget headroom",
            format_bytes(room),
            "fits" if room >= 0 else "does not fit",
            delta_color="normal" if room >= 0 else "inverse",
            delta_arrow="off",
        )
    _notes(plan)


def _notes(plan: Plan) -> None:
    problem = plan.problem
    notes = [certificate(plan), f"{len(problem):,} buffers, {problem.steps:,} steps"]
    found_by = dict(plan.parameters).get("found_by")
    if found_by:
        notes.append(f"found by {found_by}")
    if problem.origin:
        constants = storage_bytes(problem.origin.graph, Role.CONSTANT)
        notes.append(f"constants {format_bytes(constants)} in a region of their own")
    st.caption(" · ".join(notes))
    report = validate(plan)
    if not report.valid:
        count = sum(report.counts.values())
        with st.expander(f"Not valid: {count} violations", icon=":material/error:", expanded=True):
            for violation in report.violations[:20]:
                st.text(violation.message)


def _tone(good: bool) -> str:
    return "normal" if good else "off"
