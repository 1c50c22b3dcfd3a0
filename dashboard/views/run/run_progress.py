"""The line of a run that is under way: what it does now, and the button that ends it."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import RunJob
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.views.run import run_choices

EVERY_SECONDS = 0.5
PARTS = (
    "loading torch",
    "building the model",
    "exporting the model",
    "planning",
    "inserting the slab",
    "observing a run",
    "running in the slab",
    "checking every op in safety mode",
    "timing",
)


def show_progress(job: RunJob) -> None:
    """The line, looked at anew while the run goes on; why it failed, or that it was ended."""
    active = job.state.is_active
    st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(job, active)


def _panel(job: RunJob, was_active: bool) -> None:
    if was_active and not job.state.is_active:
        st.rerun()
    if job.state is State.FAILED:
        st.error(plain(job.fault), icon=":material/error:")
    elif job.state is State.CANCELLED:
        st.info(plain(f"The run of {job.asked.model} was cancelled."))
    elif job.state.is_active:
        with st.container(border=True, key="run_progress", horizontal=True, vertical_alignment="center"):
            st.progress(_share(job), plain(_told(job)))
            if st.button("Cancel", icon=":material/stop_circle:", key="run_cancel"):
                job.cancel()
                st.rerun()


def _share(job: RunJob) -> float:
    return (PARTS.index(job.part) + 0.5) / len(PARTS) if job.part in PARTS else 0.0


def _told(job: RunJob) -> str:
    if job.state is State.WAITING:
        others = run_choices.desk().waiting_for(job)
        return f"{job.asked.model}: waiting for another run to end" if others else "About to begin"
    return f"{job.asked.model}: {job.part or 'starting'} · {job.seconds:.0f} s"
