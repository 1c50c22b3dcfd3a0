"""The row of figures above the chart, the certificate, and what the validator says."""

from __future__ import annotations

from typing import Any, Literal

import streamlit as st
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.searches import verdict_of

from memplan_engine import Plan, Role, Verdict
from memplan_engine.analysis.claims import counted, left_out, workspace_name
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.graph import storage_bytes
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.units import format_bytes, format_percent

MOST_VIOLATIONS = 20
Tone = Literal["normal", "inverse", "off"]
BOUND = "No arena can be smaller. Load: the most bytes that are alive at one step."
HOLES = "Free bytes below the topmost buffer alive at the peak step; the strip shows them for every step."
BUDGET: dict[Verdict, tuple[str, Tone, str | None]] = {
    Verdict.FITS: ("arena fits", "normal", None),
    Verdict.UNDECIDED: (
        "this plan does not fit",
        "off",
        "The lower bound is within the budget, so that a smaller plan may fit. Strategies that search look "
        "for one.",
    ),
    Verdict.DOES_NOT_FIT: ("does not fit", "inverse", "No plan fits: the lower bound is above the budget."),
}
"""What is known of a budget: words, their colour, and what stands behind them."""
PEAK = "Where the most bytes are alive, those that its op holds for itself included."


def show_figures(facts: Facts, budget: int | None) -> None:
    """Arena, bound, peak, holes, saving and budget of a plan."""
    plan, peak = facts.plan, facts.peak
    _lesson(facts.document.about)
    row = st.container(key="figures").columns(6 if budget else 5, gap="small")
    over = "meets the bound" if plan.optimal else f"{format_percent(plan.gap)} over bound"
    tone: Literal["normal", "inverse", "off"] = "normal" if plan.optimal else "off"
    told = ". ".join(filter(None, (_total(plan), f"Counted: {counted(plan.problem)}")))
    row[0].metric(
        "Arena", format_bytes(plan.arena_bytes), over, delta_color=tone, delta_arrow="off", help=told
    )
    quiet: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off"}
    row[1].metric("Lower bound", format_bytes(plan.bound.nbytes), str(plan.bound.kind), help=BOUND, **quiet)
    at = plain(" · ".join([format_bytes(peak.nbytes), *(op.name for op in peak.ops[:1])]))
    row[2].metric("Peak step", f"{peak.step:,}", at, help=PEAK, **quiet)
    row[3].metric("Holes at peak", format_bytes(facts.holes_at_peak), help=HOLES)
    row[4].metric("Saved", format_percent(facts.saved), f"naive {format_bytes(facts.naive_bytes)}", **quiet)
    if budget:
        words, tone, why = BUDGET[verdict_of(plan, budget)]
        room = format_bytes(budget - plan.arena_bytes)
        row[5].metric("Budget headroom", room, words, delta_color=tone, delta_arrow="off", help=why)
    st.caption(plain(" · ".join(_notes(facts))))
    _violations(facts)


def _lesson(about: About) -> None:
    """What a teaching graph shows, in its own words."""
    if about.title:
        st.info(
            f"**{plain(about.title)}.** {plain(about.shows[:1].upper() + about.shows[1:])}",
            icon=":material/school:",
        )
        with st.expander(plain(f"The optimum is {about.optimum}: why?")):
            st.text(about.why)


def _notes(facts: Facts) -> list[str]:
    plan, problem = facts.plan, facts.plan.problem
    notes = [
        certificate(plan),
        *([f"{format_bytes(plan.total_bytes)} in all"] if plan.workspace_bytes else []),
        f"{len(problem):,} buffers, {problem.steps:,} steps",
    ]
    found_by = dict(plan.parameters).get("found_by")
    if found_by:
        notes.append(f"found by {found_by}")
    if plan.threads > 1:
        notes.append(f"on {plan.threads} threads")
    if plan.cut_short:
        notes.append(f"cut short after {plan.seconds:.1f} s")
    if problem.origin:
        constants = storage_bytes(problem.origin.graph, Role.CONSTANT)
        if constants:
            notes.append(f"constants {format_bytes(constants)} in a region of their own")
    unknown = left_out(problem)
    # What else an eager run holds stands with the arena.
    scope = counted(problem).partition(": ")[0]
    return [*notes, f"counted: {scope}", *([f"not planned: {unknown}"] if unknown else [])]


def _total(plan: Plan) -> str:
    """What the arena and the scratch of ops come to together, "" without any."""
    if not plan.workspace_bytes:
        return ""
    workspace = f"{format_bytes(plan.workspace_bytes)} of {workspace_name(plan.problem)}"
    return f"{format_bytes(plan.total_bytes)} in all with {workspace} beside the arena"


def _violations(facts: Facts) -> None:
    report = facts.report
    if report.valid:
        return
    count = sum(report.counts.values())
    found = f"{count:,} violation{'s' * (count != 1)}"
    with st.expander(f":red[**Not valid: {found}**]", icon=":material/error:", expanded=True):
        for violation in report.violations[:MOST_VIOLATIONS]:
            st.text(violation.message)
        if count > MOST_VIOLATIONS:
            st.caption(f"and {count - MOST_VIOLATIONS:,} more")
