"""A small Llama on ranks that somebody chooses: run in a process of its own, with progress and an end."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TypeVar

import streamlit as st
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.ranks_job import (
    BATCHES,
    CHECKPOINTS,
    SCHEDULES,
    STAGES,
    TENSOR,
    WORLDS,
    RanksAsked,
    RanksJob,
)
from memplan_dashboard.background.scheduler import JobScheduler
from memplan_dashboard.session import rank_runs, searches, state, uploads
from memplan_dashboard.session.messages import plain, show_error

from memplan_engine import MemplanError

Choice = TypeVar("Choice", int, str)
EVERY_SECONDS = 0.5
JOB = "ranks_job"
ABOUT = (
    "The Llama of `example_graphs/llama_ranks.py` (4 layers 64 wide, 32 tokens) on ranks that are not there: "
    "of those that are alike one is run, three steps, in some ten seconds. Nothing that is uploaded is run."
)


@st.cache_resource(show_spinner=False)
def scheduler() -> JobScheduler:
    """The runs of all sessions, one at a time: each has processes of its own."""
    return JobScheduler(lambda session: searches.session_is_alive(session), most=1)


def show_start() -> None:
    """The choices, and what became of them."""
    job: RanksJob | None = st.session_state.get(JOB)
    running = job is not None and job.state.is_active
    with st.expander("Run a small Llama on other ranks", icon=":material/play_arrow:", expanded=running):
        if find_spec("torch") is None:
            st.info("Running ranks needs torch: pip install 'memplan[torch]'")
            return
        asked = _asked()
        if asked is not None:
            _begin(asked)
        job = st.session_state.get(JOB)
        if job is not None:
            _follow(job)


def _asked() -> RanksAsked | None:
    """What was chosen, once somebody starts it."""
    usual = RanksAsked()
    st.caption(ABOUT)
    with st.form("ranks_form", border=False):
        columns = iter(st.columns(6))

        def pick(label: str, known: Sequence[Choice], value: Choice) -> Choice:
            place = known.index(value)
            return next(columns).selectbox(label, known, index=place, key=f"ranks_start_{label}") or value

        asked = RanksAsked(
            pick("Ranks", WORLDS, usual.world),
            pick("Tensor parallel", TENSOR, usual.tensor),
            pick("Pipeline stages", STAGES, usual.stages),
            pick("Schedule", SCHEDULES, usual.schedule),
            pick("Checkpoints", CHECKPOINTS, usual.checkpoint),
            pick("Batch of a rank", BATCHES, usual.batch),
        )
        started = st.form_submit_button("Run these ranks", type="primary")
    return asked if started else None


def _begin(asked: RanksAsked) -> None:
    try:
        # What cannot be is said before a process starts.
        _ = asked.arguments
    except MemplanError as error:
        show_error(error)
        return
    job = st.session_state[JOB] = RanksJob(searches.session_id(), asked, person=uploads.visitor())
    scheduler().submit(job)


def _follow(job: RanksJob) -> None:
    if job.state is State.DONE:
        st.session_state[JOB] = None
        assert job.archive is not None
        name = f"{job.asked.name}.ranks.zip"
        key = uploads.keep_readable(name, job.archive, rank_runs.open_ranks, rank_runs.KIND)
        state.choose(ranks=key, rank="")
        st.rerun()
    active = job.state.is_active
    st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(job, active)


def _panel(job: RanksJob, was_active: bool) -> None:
    if was_active and not job.state.is_active:
        state.run_again()
    if job.state is State.FAILED:
        show_error(job.fault)
    elif job.state is State.CANCELLED:
        st.info(plain(f"The run of {job.asked.name} was cancelled."))
    elif job.state.is_active:
        with st.container(border=True, key="ranks_progress", horizontal=True, vertical_alignment="center"):
            st.markdown(plain(_told(job)))
            if st.button("Cancel", icon=":material/stop_circle:", key="ranks_cancel"):
                job.cancel()
                st.rerun()


def _told(job: RanksJob) -> str:
    if job.state is State.WAITING:
        return f"{job.asked.name}: waiting for its turn, {searches.turn_text(scheduler(), job)}"
    return f"{job.asked.name}: {job.part or 'starting'} · {job.seconds:.0f} s"
