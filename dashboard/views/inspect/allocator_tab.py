"""What PyTorch's caching allocator would reserve: three answers, its segments step by step, and what other
settings change."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import OF_DOCUMENT
from memplan_dashboard.views.inspect.segments_view import show_segments
from memplan_dashboard.widgets.controls import QUIET, chooses, pick_headroom, pick_settings
from memplan_dashboard.widgets.tables import show_table, whole

from memplan_engine.accelerators.presets import PRESETS, accelerator
from memplan_engine.allocator.answers import Answers, three_answers
from memplan_engine.allocator.settings import VARIABLE, parse_settings
from memplan_engine.reporters.allocator.answer_tables import (
    basis,
    live_basis,
    message_of,
    settings_columns,
    settings_words,
    verdict_words,
)
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.units import format_bytes, parse_bytes
from memplan_engine.verdict import Verdict

NO_DEVICE = "no device"
ALLOCATOR = "Allocator"
"""The name of the tab."""


def show_allocator(document: Document, marked: int | None = None) -> None:
    """The choices, then the answers for them; an error stands below the choices. Segments are those of the
    step that is `marked`, as long as no other was picked."""
    columns = st.columns([2, 1.4, 1], gap="small")
    with columns[0]:
        pick_settings()
    with columns[1]:
        asked = state.get("gpu")
        names = [NO_DEVICE, *PRESETS]
        current = asked if asked in PRESETS else NO_DEVICE
        st.selectbox(
            "Device",
            names,
            help="Does it fit? Its usable bytes, as PyTorch's error messages report them.",
            **chooses("gpu", current, text=lambda name: "" if name == NO_DEVICE else name),
        )
    with columns[2]:
        pick_headroom()
    with errors_shown():
        _show_answers(_answers(document, state.get("settings"), current, state.get("headroom")), marked)


def _answers(document: Document, settings: str, gpu: str, headroom: str) -> Answers:
    """Raises MemplanError for settings or headroom that are none."""
    parse_settings(settings)
    parse_bytes(headroom or "0", "headroom")
    return _simulated(document, settings, gpu, headroom)


@st.cache_resource(max_entries=8, show_spinner="Simulating the allocator …", hash_funcs=OF_DOCUMENT)
def _simulated(document: Document, settings: str, gpu: str, headroom: str) -> Answers:
    source, index = documents.requests_of(document)()
    return three_answers(
        source,
        parse_settings(settings) if settings.strip() else None,
        gpu=None if gpu == NO_DEVICE else accelerator(gpu),
        headroom=parse_bytes(headroom or "0", "headroom"),
        index=index,
    )


def _show_answers(answers: Answers, marked: int | None) -> None:
    chosen, run, device = answers.chosen, answers.chosen.run, answers.chosen.device
    columns = st.columns(3)
    columns[0].metric("Live", format_bytes(answers.live_bytes), live_basis(answers), **QUIET)
    reserved = " to ".join(map(format_bytes, dict.fromkeys(answers.reserved)))
    told = f"at least, {basis(chosen)}" if answers.partial else basis(chosen)
    columns[1].metric("Reserved", reserved, told, **QUIET)
    if device is not None and chosen.total is not None:
        if device.is_recorded:
            columns[2].metric(
                "Recorded device", format_bytes(device.total_bytes), "with what was free", **QUIET
            )
        else:
            total = " to ".join(map(format_bytes, chosen.total))
            columns[2].metric("Device total", total, f"of {format_bytes(device.total_bytes)}", **QUIET)
        _show_verdict(answers)
    show_segments(run, marked)
    show_table(pd.DataFrame(settings_columns(answers)), whole("bytes"), key="allocator_what_if")
    for note in answers.notes:
        st.caption(plain(note))


def _show_verdict(answers: Answers) -> None:
    """Green only for what rests on rules that were compared with recordings."""
    chosen, suggested = answers.chosen, answers.suggested
    device, run = chosen.device, chosen.on_device
    if device is None or run is None or chosen.verdict is None:
        return
    beside = f"{format_bytes(device.least_overhead)} to {format_bytes(device.most_overhead)} held outside it"
    known = device.source if device.is_recorded else beside
    told = f"{device.name}: {verdict_words(chosen)}; {known}; {basis(chosen)}"
    if chosen.verdict is Verdict.DOES_NOT_FIT:
        st.error(plain(told))
        if run.failures and (message := message_of(run.failures[0], chosen)):
            st.code(message, language=None, wrap_lines=True)
    elif chosen.verdict is Verdict.FITS and not run.is_rules_only:
        st.success(plain(told))
    else:
        st.info(plain(told))
    advice = answers.advice
    if advice.failed and (answers.others or answers.out_of_reach is not None):
        st.caption(plain(sentence_case(settings_words(advice))))
    if suggested is not None:
        if not advice.failed:
            st.caption("Settings that fit:")
        st.code(f'{VARIABLE}="{suggested.settings}"', language=None)
