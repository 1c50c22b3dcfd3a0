"""Fits in … ? Prove it: the search for a plan within a capacity, the core where there is none, and the
smallest changes that make it fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st
from memplan_dashboard.session import scenarios
from memplan_dashboard.session.messages import file_name, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.session.scenarios import ScenarioView
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.tables import SHARE, WHOLE, named, show_table

from memplan_engine import FitReport, Suggestion, Verdict
from memplan_engine.analysis.buffer_names import labels_of
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.reporters.what_if_tables import (
    core_words,
    proof_words,
    shortage_words,
    suggestion_words,
    verdict_words,
)
from memplan_engine.units import format_bytes, format_span
from memplan_engine.what_if.edits import MOST_EDITS
from memplan_engine.what_if.suggestions.cover import Shortage

MOST_MEMBERS = 500


def show_proof(view: ScenarioView, facts: PlanFacts, capacity: int | None) -> None:
    """The question whether `capacity` bytes are enough; the field and the answer when it is opened."""
    # The same words for every capacity: one with another label is another popover to Streamlit, and closed.
    proof = st.popover("Fits in …? Prove it", type="tertiary", key="proof", on_change="rerun")
    if proof.open:
        with proof:
            controls.pick_capacity("capacity_to_prove")
            if capacity:
                _answer(view, facts, capacity)


def _answer(view: ScenarioView, facts: PlanFacts, capacity: int) -> None:
    """Whether the plan of `facts` fits `capacity` bytes, what proves it, and what would make it fit."""
    fit = scenarios.fit_of(facts.plan, capacity)
    verdict = fit.decision.verdict
    kind = st.error if verdict is Verdict.DOES_NOT_FIT else st.success if fit.decision.whole else st.warning
    kind(plain(verdict_words(fit)))
    if verdict is Verdict.DOES_NOT_FIT:
        _core(fit, capacity)
    if fit.shortage is not None:
        st.caption(plain(shortage_words(fit.shortage)))
    for place, suggestion in enumerate(fit.suggestions):
        _suggestion(view, fit, suggestion, place)
    if fit.decision.placed is not Verdict.FITS and not fit.suggestions:
        st.caption("No change was found that makes it fit.")
    if not fit.complete:
        st.caption("The search on this page is short; the command line can search longer.")
    if fit.shortage is not None:
        with st.expander(f"Live at the {fit.shortage.steps:,} overfull steps"):
            _members(fit, fit.shortage)


def _core(fit: FitReport, capacity: int) -> None:
    """The buffers that alone do not fit, by name, and as a file."""
    plan = fit.decision.plan
    core = scenarios.core_of(plan, capacity)
    problem, labels = core.problem, labels_of(plan.problem)
    rows = np.argsort(-problem.size, kind="stable")[:MOST_MEMBERS].tolist()
    with st.expander(plain(sentence_case(core_words(core)))):
        table = pd.DataFrame(
            {
                **named("buffer", [problem.names[row] for row in rows], labels),
                "size": [format_bytes(int(problem.size[row])) for row in rows],
                "bytes": problem.size[rows],
                "lifetime": [format_span(int(problem.start[row]), int(problem.end[row])) for row in rows],
            }
        )
        show_table(table, {"bytes": WHOLE}, key="core", most=220)
        if len(problem) > len(rows):
            st.caption(f"and {len(problem) - len(rows):,} more")
        st.download_button(
            "Core, CSV",
            lambda: to_csv(problem),
            f"{file_name(problem.name)}.csv",
            "text/csv",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help="These buffers alone, as `memplan plan --capacity … --core FILE` writes them.",
        )


def _suggestion(view: ScenarioView, fit: FitReport, suggestion: Suggestion, place: int) -> None:
    words, button = st.columns([5, 1], vertical_alignment="center")
    words.text(suggestion_words(suggestion, fit.decision.plan.problem))
    words.caption(plain(f"arena after {format_bytes(suggestion.arena_bytes)} · {proof_words(suggestion)}"))
    room = MOST_EDITS - len(view.scenario.edits) - len(suggestion.edits)
    button.button(
        "Apply",
        key=f"what_if_apply_{place}",
        disabled=room < 0,
        help=None if room >= 0 else f"An address holds {MOST_EDITS} changes.",
        on_click=scenarios.attempt,
        args=(view, *suggestion.edits),
    )


def _members(fit: FitReport, shortage: Shortage) -> None:
    problem, steps = fit.decision.plan.problem, shortage.steps
    members = shortage.members[:MOST_MEMBERS]
    rows = pd.DataFrame(
        {
            **named("buffer", [problem.names[each.buffer] for each in members], labels_of(problem)),
            "size": [format_bytes(each.nbytes) for each in members],
            "bytes": [each.nbytes for each in members],
            "overfull steps": [each.steps for each in members],
            "share": [each.steps / steps for each in members],
            "enough alone": [each.buffer in shortage.single for each in members],
        }
    )
    columns = {"bytes": WHOLE, "share": SHARE}
    st.dataframe(rows, hide_index=True, key="what_if_members", column_config=columns)
    if len(shortage.members) > MOST_MEMBERS:
        st.caption(f"and {len(shortage.members) - MOST_MEMBERS:,} more")
