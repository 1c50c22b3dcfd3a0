"""What the page says first: the peak in one sentence, the figures, and what the validator says."""

from __future__ import annotations

from typing import Literal

import streamlit as st
from memplan_dashboard.plan_view.component import Marks
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.calibration_note import show_calibration

from memplan_engine import Decision, Problem, Verdict
from memplan_engine.analysis.claims import (
    counted,
    doubt,
    is_proved,
    left_out,
    optimal_for,
    over_bound,
    peak_name,
    remarks,
)
from memplan_engine.analysis.device_memory import on_device
from memplan_engine.analysis.plan_figures import PlanFigures
from memplan_engine.analysis.tied_peaks import tied_peaks
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.reporters.figure_list import Card, figure_cards
from memplan_engine.reporters.peak_report import difference_headline, headline
from memplan_engine.reporters.plan_tables import certificate, planner
from memplan_engine.units import format_bytes
from memplan_engine.verdict import EITHER_WAY, Reason

MOST_VIOLATIONS = 20
MOST_TIES = 16
Tone = Literal["green", "red", "orange"]
CAPACITY: dict[Verdict, tuple[str, Tone, str | None]] = {
    Verdict.FITS: ("Fits", "green", None),
    Verdict.UNDECIDED: (
        "This plan does not fit",
        "orange",
        "The lower bound is within the capacity, so a smaller plan may fit. Strategies that search look "
        "for one.",
    ),
    Verdict.DOES_NOT_FIT: ("Does not fit", "red", "No plan fits: the lower bound is above the capacity."),
}
"""What is known of a capacity: words, their colour, and what stands behind them."""


def show_headline(facts: PlanFacts, marks: Marks) -> None:
    """What the peak, or what is live at another step, is made of, in one sentence; of two steps the
    difference."""
    _lesson(facts.document.about)
    problem = facts.plan.problem
    contents = facts.at(marks[0])
    told = headline(contents, problem, contents.step == facts.peak.step)
    if marks[1] is not None:
        told = difference_headline(facts.at(marks[1]), contents)
    subject, colon, rest = told.partition(": ")
    with st.container(key="headline"):
        made_of = f" :gray[{plain(rest)}]" if rest else ""
        st.subheader(plain(subject + colon.rstrip()) + made_of, anchor=False)


def show_figures(facts: PlanFacts, capacity: int | None) -> None:
    """The verdict on a plan, its figures and the capacity, a chip each, with the exact bytes and what stands
    behind them when it is pointed at."""
    plan = facts.plan
    with st.container(key="figures", horizontal=True, vertical_alignment="center", gap="small"):
        if not facts.report.valid:
            st.badge(verdict(facts), icon=":material/error:", color="red")
        elif is_proved(plan):
            told = plain(certificate(plan))
            st.badge(plain(verdict(facts)), icon=":material/check:", color="green", help=told)
        else:
            st.badge(plain(verdict(facts)), color="gray", help=plain(certificate(plan)))
        if capacity:
            decision = Decision(capacity, plan)
            words, tone, why = CAPACITY[decision.verdict]
            doubted = decision.placed is Verdict.FITS or decision.reason in EITHER_WAY
            if decision.reason is not None and doubted:
                words, why = "Undecided", f"{decision.reason}. {decision.reason.meaning}"
            room = capacity - plan.arena_bytes
            spare = f"{format_bytes(abs(room))} {'to spare' if room >= 0 else 'over'}"
            st.badge(f"{words}, {spare}", color=tone, help=why)
        ties = tied_peaks(plan.problem)
        if len(ties) > 1:
            where = ", ".join(f"{tie.module or 'step'} {tie.step:,}".strip() for tie in ties[:MOST_TIES])
            told = f"Shrinking one of them alone saves nothing. Steps: {where}"
            name = peak_name(plan.problem)
            st.badge(f"{len(ties)} steps tie for the {name}", color="blue", help=plain(told))
        if device := on_device(plan.problem):
            parts = " · ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in device.items())
            told = (
                f"Arena, temporaries beside it, and what lies outside, at the step with the most: {parts}. "
                "Step by step: Layout, below"
            )
            st.badge(f"On the device {format_bytes(sum(device.values()))}", color="gray", help=plain(told))
        for card, meaning in figure_cards(facts.figures, "page"):
            st.badge(plain(f"{card.label} {card.value}"), color="gray", help=plain(_behind(card, meaning)))
    _violations(facts)


def _behind(card: Card, meaning: str) -> str:
    """The exact figure, its note where that says more, and what it means."""
    note = "" if card.note in card.exact else f"{card.note[:1].upper()}{card.note[1:]}"
    return ". ".join(filter(None, (card.exact, note, meaning)))


def verdict(facts: PlanFacts) -> str:
    """What is known of a plan, in a few words."""
    plan = facts.plan
    if not facts.report.valid:
        return "Not valid"
    if doubt(plan.problem) is Reason.PARTIAL:
        return "Part of a run"
    if doubt(plan.problem) is Reason.COMPILED:
        return "Compiled run, eager figures"
    if plan.optimal:
        return f"Optimal for {optimal_for(plan.problem)}"
    return f"Optimality not proved, {over_bound(plan)}"


def show_exactly(facts: PlanFacts) -> None:
    """The exact arena and what is known of it."""
    st.caption(plain(f"Arena {facts.plan.arena_bytes:,} B · {verdict(facts)}"), width="stretch")


def show_notes(facts: PlanFacts) -> None:
    """What stands behind the figures: the certificate, what is counted and what is not."""
    st.caption(plain(" · ".join(filter(None, _notes(facts)))))
    show_calibration(facts.document)


def _lesson(about: About) -> None:
    """What a teaching graph shows, in its own words."""
    if about.title:
        with st.container(
            key="lesson", horizontal=True, wrap=False, vertical_alignment="center", gap="small"
        ):
            st.info(
                f"**{plain(about.title)}.** {plain(about.shows[:1].upper() + about.shows[1:])}",
                icon=":material/school:",
                width="stretch",
            )
            with st.popover(plain(f"Why {about.optimum}".strip() + "?"), type="tertiary"):
                st.text(about.why)


def _notes(facts: PlanFacts) -> list[str]:
    plan, problem = facts.plan, facts.plan.problem
    notes = [
        certificate(plan),
        _total(problem, facts.figures),
        f"{len(problem):,} buffers, {problem.steps:,} steps",
    ]
    if found_by := planner(plan):
        notes.append(f"planner: {found_by}")
    if plan.threads > 1:
        notes.append(f"on {plan.threads} threads")
    if plan.cut_short:
        notes.append(f"stopped after {plan.seconds:.1f} s")
    if constants := facts.figures.constants:
        sizes = (f"{name} {format_bytes(size)}" for name, size in _beside(problem, constants).items())
        notes.append(f"{', '.join(sizes)} (separate)")
    unknown = left_out(problem)
    # What else an eager run holds stands with the arena.
    scope = counted(problem).partition(": ")[0]
    notes += [f"counted: {scope}", *(remark for remark in remarks(problem) if remark not in scope)]
    return [*notes, *([f"not planned: {unknown}"] if unknown else [])]


def _beside(problem: Problem, constants: int) -> dict[str, int]:
    """What the constants are, bytes: weights, and of a training step the optimizer's state."""
    kept = {name: size for name, size in on_device(problem).items() if name in ("weights", "optimizer state")}
    if sum(kept.values()) != constants:
        kept = {"weights": constants}
    return dict(sorted(kept.items(), reverse=True))


def _total(problem: Problem, figures: PlanFigures) -> str:
    """What the arena and the scratch of ops come to together, and of what that is the total; "" without
    any."""
    if not figures.workspace:
        return ""
    workspace = f"{format_bytes(figures.workspace)} of {figures.workspace_name}"
    separate = " and ".join(_beside(problem, figures.constants)) if figures.constants else ""
    rest = f", without {separate}" if separate else ""
    return f"arena and {workspace} beside it: {format_bytes(figures.total)}{rest}"


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
