"""Fit: does the model fit into a capacity, and by which rewrites, cheapest first?"""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.background.fit_job import FitAsked, FitJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.session import fitting, searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.fitting import Outcome
from memplan_dashboard.session.messages import errors_shown, plain, show_error, show_note
from memplan_dashboard.session.plan_facts import MOST_AT_ONCE
from memplan_dashboard.views.fit.fit_choices import command_of, pick_fit, wrong_choices
from memplan_dashboard.views.fit.fit_curve import show_curve
from memplan_dashboard.views.fit.fit_result import (
    show_answer,
    show_changes,
    show_downloads,
    show_held,
    show_patch,
    show_profiles,
    show_stages,
)

from memplan_engine import Graph
from memplan_engine.fitting.fit_stages import stages_for
from memplan_engine.fitting.fitted import StageName
from memplan_engine.fitting.recompute_stage import POINTS
from memplan_engine.reporters.fit.fit_words import TOLD
from memplan_engine.units import count_of, format_bytes, format_percent

EVERY_SECONDS = 0.5


def _no_graph(document: Document) -> None:
    """What to do with buffers, which have no ops."""
    st.info(
        f"**{plain(document.label)}** has no ops that could be rewritten: it is a "
        f"{'finished plan' if document.plan else 'list of buffers'}. Whether its buffers fit is asked on "
        "**Inspect**: Fits in …? Prove it, below the chart, which also finds the smallest changes that help. "
        "Rewrites need a graph: a factory or a .pt2 file through `memplan capture`, ONNX, memplan JSON or an "
        "observation of a predicted run.",
        icon=":material/info:",
    )
    st.page_link("views/inspect/inspect_page.py", label="Open it on Inspect", icon=":material/view_quilt:")


def _show_progress(job: FitJob) -> None:
    """The line, looked at anew while the fit goes on; why it failed."""
    active = job.state.is_active
    seen = len(job.stages), len(job.points)
    st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(job, active, seen)


def _panel(job: FitJob, was_active: bool, seen: tuple[int, int]) -> None:
    if was_active and (not job.state.is_active or (len(job.stages), len(job.points)) != seen):
        state.run_again()
    if job.state is State.FAILED:
        show_error(job.fault)
    elif job.state is State.CANCELLED:
        st.info("The fit was cancelled before its first stage was there.")
    elif job.state.is_active:
        with st.container(border=True, key="fit_progress", horizontal=True, vertical_alignment="center"):
            several = len(stages_for(job.graph, job.asked.only, fitting.times_of(job.asked, job.graph)))
            done = len(job.stages) + (len(job.points) / POINTS if job.points else 0.5)
            st.progress(min(done / several, 1.0), plain(_told(job)))
            if st.button(
                "Cancel", icon=":material/stop_circle:", key="fit_cancel", help="Keeps what is there"
            ):
                job.cancel()
                st.rerun()


def _told(job: FitJob) -> str:
    if job.state is State.WAITING:
        return f"Waiting for its turn: {searches.turn_text(searches.scheduler(), job)}"
    part = TOLD[StageName(job.part)] if job.part else "starting"
    words = f"{part} · {job.seconds:.0f} s"
    if job.points:
        last = job.points[-1]
        found = f"{format_bytes(last.plan.arena_bytes)} for +{format_percent(last.time.extra)} time"
        return f"{words} · {count_of(len(job.points), 'point')}, down to {found}"
    if job.order is None:
        return words
    found = f"best {format_bytes(job.order.peak_bytes)}, bound {format_bytes(job.order.bound_bytes)}"
    return f"{words} · {found}, {count_of(job.order.states, 'set')} searched"


def _found(
    asked: FitAsked, graph: Graph, is_large: bool = False, order: tuple[str, ...] = ()
) -> tuple[Outcome | None, bool]:
    """What there is of the fit, and whether more may come; begins the fit if need be, in the `order` of ops
    that was found before, and tells of it."""
    job = fitting.job_of(asked)
    if job is not None:
        fitting.collect(job)
    outcome = fitting.results().get(asked)
    if job is None and outcome is None:
        if is_large and not st.button("Fit", type="primary", icon=":material/play_arrow:", key="fit_begin"):
            st.info("A graph of this size takes a while: press **Fit**.")
            return None, False
        job = fitting.begin(asked, graph, order)
    if job is not None and (job.state.is_active or outcome is None):
        _show_progress(job)
        so_far = Outcome(job.stages, job.gradients, cut_short=False, curve=job.curve)
        return so_far, job.state.is_active
    if outcome is None:
        return None, False
    if outcome.cut_short:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="fit_cut_short"):
            st.caption("Cancelled: these are the stages that were there.", width="content")
            if st.button("Fit again", icon=":material/play_circle:", key="fit_again", type="tertiary"):
                del fitting.results()[asked]
                st.rerun()
    return outcome, False


def _page() -> None:
    document = state.current_document()
    capacity = pick_fit(document)
    show_note(wrong_choices())
    answer = st.container()
    with errors_shown():
        graph = fitting.graph_of(document)
        if graph is None or document.plan is not None:
            _no_graph(document)
            return
        asked = fitting.asked_of(document)
        if aside := fitting.set_aside(document.options.how):
            st.caption(plain(f"Not taken from the options of the graph: {', '.join(aside)}."))
        found, unfinished = _found(asked, graph, len(document.problem) > MOST_AT_ONCE)
        if found is None or not found.stages:
            return
        fitted = fitting.fitted_of(asked, graph, capacity, found)
        copies = None if unfinished else fitting.copies_asked(asked, fitted)
        if copies is not None:
            moved, unfinished = _found(copies, graph, order=fitting.order_of(fitted))
            asked = copies
            if moved is not None:
                fitted = fitting.with_copies(fitted, copies, graph, moved)
        times = fitting.times_of(asked, graph)
        with answer:
            show_answer(fitted, unfinished)
        left, right = st.container(key="halves_fit").columns([1.5, 1], gap="large")
        with left:
            show_stages(fitted)
            show_profiles(fitted)
            show_downloads(fitted)
            st.code(command_of(asked, document.label, capacity), language=None, wrap_lines=True)
        with right:
            show_curve(fitted, fitting.border_of(found), fitting.torch_points(document, asked), unfinished)
            changes = fitting.changes_of(asked, fitted, graph)
            show_changes(asked, fitted, changes, times, unfinished)
            show_patch(fitted)
            show_held(fitted)


_page()
