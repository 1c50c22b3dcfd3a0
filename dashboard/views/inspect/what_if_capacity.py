"""Does it fit? The answer, who is in the way, and the smallest changes that make it fit, a click away."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session import scenarios, state
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.scenarios import Changed

from memplan_engine import FitReport, MemplanError, Suggestion, Verdict
from memplan_engine.reporters.what_if_tables import verdict_words
from memplan_engine.reporters.what_if_words import proof_words, shortage_words, suggestion_words
from memplan_engine.units import format_bytes, parse_bytes
from memplan_engine.what_if.edits import MOST_EDITS
from memplan_engine.what_if.suggestions.shortage import Shortage

MOST_MEMBERS = 500


def show_capacity(found: Changed, facts: Facts, capacity: int | None) -> None:
    """The capacity is the one of the row above; here it may be written as 512KiB."""
    st.markdown("**Does it fit?**")
    current = _written(capacity)
    if st.session_state.get("what_if_capacity_was") != capacity:
        st.session_state.what_if_capacity_was, st.session_state.what_if_capacity = capacity, current
    st.session_state.setdefault("what_if_capacity", current)
    text = st.text_input(
        "Capacity in bytes",
        key="what_if_capacity",
        placeholder="512KiB",
        on_change=_take,
        help="Bytes, or as 512KiB or 100MB (10^8).",
    )
    fault = st.session_state.get("what_if_capacity_fault")
    if fault and text:
        st.error(plain(fault), icon=":material/error:")
        return
    if not capacity:
        st.caption("Give a capacity to see whether it fits, and the smallest change that makes it fit.")
        return
    _answer(found, scenarios.fit_of(facts.plan, capacity))


def _take() -> None:
    text = st.session_state.what_if_capacity.strip()
    try:
        nbytes = parse_bytes(text, "capacity") if text else 0
    except MemplanError as error:
        st.session_state.what_if_capacity_fault = str(error)
        return
    st.session_state.what_if_capacity_fault = ""
    st.session_state.what_if_capacity_was = nbytes or None
    state.choose(capacity=repr(nbytes / 2**20).removesuffix(".0") if nbytes else "")


def _written(capacity: int | None) -> str:
    if not capacity:
        return ""
    short = format_bytes(capacity)
    try:
        exact = parse_bytes(short) == capacity
    except MemplanError:
        # Rounded, it is no whole number of bytes: 10.24 KiB.
        exact = False
    return short if exact else str(capacity)


def _answer(found: Changed, fit: FitReport) -> None:
    verdict = fit.decision.verdict
    kind = st.error if verdict is Verdict.DOES_NOT_FIT else st.success if fit.decision.whole else st.warning
    kind(plain(verdict_words(fit)))
    if fit.shortage is not None:
        st.caption(plain(shortage_words(fit.shortage)))
    for place, suggestion in enumerate(fit.suggestions):
        _suggestion(found, fit, suggestion, place)
    if verdict is not Verdict.FITS and not fit.suggestions:
        st.caption("No change was found that makes it fit.")
    if not fit.complete:
        st.caption("Looked for as long as a page may take; the command line can look longer.")
    if fit.shortage is not None:
        with st.expander(f"Who is alive at the {fit.shortage.steps:,} overfull steps"):
            _members(fit, fit.shortage)


def _suggestion(found: Changed, fit: FitReport, suggestion: Suggestion, place: int) -> None:
    words, button = st.columns([5, 1], vertical_alignment="center")
    words.text(suggestion_words(suggestion, fit.decision.plan.problem))
    words.caption(plain(f"arena then {format_bytes(suggestion.arena_bytes)} · {proof_words(suggestion)}"))
    room = MOST_EDITS - len(found.scenario.edits) - len(suggestion.edits)
    button.button(
        "Apply",
        key=f"what_if_apply_{place}",
        disabled=room < 0,
        help=None if room >= 0 else f"An address holds {MOST_EDITS} changes.",
        on_click=scenarios.attempt,
        args=(found, *suggestion.edits),
    )


def _members(fit: FitReport, shortage: Shortage) -> None:
    names, steps = fit.decision.plan.problem.names, shortage.steps
    members = shortage.members[:MOST_MEMBERS]
    rows = pd.DataFrame(
        {
            "buffer": [names[each.buffer] for each in members],
            "size": [format_bytes(each.nbytes) for each in members],
            "bytes": [each.nbytes for each in members],
            "overfull steps": [each.steps for each in members],
            "of them": [each.steps / steps for each in members],
            "enough alone": [each.buffer in shortage.single for each in members],
        }
    )
    config = {
        "bytes": st.column_config.NumberColumn(format="localized"),
        "of them": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1),
    }
    st.dataframe(rows, hide_index=True, key="what_if_members", column_config=config)
    if len(shortage.members) > MOST_MEMBERS:
        st.caption(f"and {len(shortage.members) - MOST_MEMBERS:,} more")
