"""The row of figures above the chart, the certificate, and what the validator says."""

from __future__ import annotations

from typing import Literal

import streamlit as st
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.searches import verdict_of
from memplan_dashboard.widgets.controls import QUIET

from memplan_engine import Verdict
from memplan_engine.analysis.claims import counted, left_out
from memplan_engine.analysis.plan_figures import PlanFigures
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.reporters.figure_list import figure_cards
from memplan_engine.reporters.plan_tables import certificate
from memplan_engine.units import format_bytes

MOST_VIOLATIONS = 20
Tone = Literal["normal", "inverse", "off"]
CAPACITY: dict[Verdict, tuple[str, Tone, str | None]] = {
    Verdict.FITS: ("arena fits", "normal", None),
    Verdict.UNDECIDED: (
        "this plan does not fit",
        "off",
        "The lower bound is within the capacity, so that a smaller plan may fit. Strategies that search look "
        "for one.",
    ),
    Verdict.DOES_NOT_FIT: ("does not fit", "inverse", "No plan fits: the lower bound is above the capacity."),
}
"""What is known of a capacity: words, their colour, and what stands behind them."""


def show_figures(facts: PlanFacts, capacity: int | None) -> None:
    """Arena, bound, peak, holes, saving and capacity of a plan."""
    plan = facts.plan
    _lesson(facts.document.about)
    (arena, _), *rest = figure_cards(facts.figures, "page")
    row = st.container(key="figures").columns(1 + len(rest) + bool(capacity), gap="small")
    tone: Tone = "normal" if plan.optimal else "off"
    told = ". ".join(filter(None, (_total(facts.figures), f"Counted: {counted(plan.problem)}")))
    row[0].metric(arena.label, arena.value, arena.note, delta_color=tone, delta_arrow="off", help=told)
    for column, (card, meaning) in zip(row[1:], rest, strict=False):
        note = plain(card.note) or None
        column.metric(card.label, card.value, note, **QUIET, help=meaning or None)
    if capacity:
        words, tone, why = CAPACITY[verdict_of(plan, capacity)]
        room = format_bytes(capacity - plan.arena_bytes)
        row[-1].metric("Capacity headroom", room, words, delta_color=tone, delta_arrow="off", help=why)
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


def _notes(facts: PlanFacts) -> list[str]:
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
    if constants := facts.figures.constants:
        notes.append(f"constants {format_bytes(constants)} in a region of their own")
    unknown = left_out(problem)
    # What else an eager run holds stands with the arena.
    scope = counted(problem).partition(": ")[0]
    return [*notes, f"counted: {scope}", *([f"not planned: {unknown}"] if unknown else [])]


def _total(figures: PlanFigures) -> str:
    """What the arena and the scratch of ops come to together, "" without any."""
    if not figures.workspace:
        return ""
    workspace = f"{format_bytes(figures.workspace)} of {figures.workspace_name}"
    return f"{format_bytes(figures.total)} in all with {workspace} beside the arena"


def _violations(facts: PlanFacts) -> None:
    report = facts.report
    if report.valid:
        return
    count = sum(report.counts.values())
    violations = f"{count:,} violation{'s' * (count != 1)}"
    with st.expander(f":red[**Not valid: {violations}**]", icon=":material/error:", expanded=True):
        for violation in report.violations[:MOST_VIOLATIONS]:
            st.text(violation.message)
        if count > MOST_VIOLATIONS:
            st.caption(f"and {count - MOST_VIOLATIONS:,} more")
