"""Which commit is to blame where several lie between two that were recorded: a search in a process of its
own, with progress and an end."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import streamlit as st
from memplan_dashboard.background.bisect_job import BisectAsked, BisectJob
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.scheduler import JobScheduler
from memplan_dashboard.session import searches, state, stores, uploads
from memplan_dashboard.session.messages import plain, show_error
from memplan_dashboard.session.stores import StorePlace

from memplan_engine import MemplanError
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.git.git_commit import work_tree
from memplan_engine.history.git.git_history import known_commit
from memplan_engine.history.store_place import FACTORIES
from memplan_engine.reporters.history.change_words import gap_sentence

JOB = "bisect_job"
EVERY_SECONDS = 0.5
TRAINING = {"": "inference", "step": "training step", "joint": "forward and backward"}


@st.cache_resource(show_spinner=False)
def scheduler() -> JobScheduler:
    """The searches of all sessions, one at a time: each captures on all cores."""
    return JobScheduler(lambda session: searches.session_is_alive(session), most=1)


def factories() -> list[str]:
    """Those that whoever started the server has named: nobody else's code is run."""
    return [each for each in os.environ.get(FACTORIES, "").splitlines() if each.strip()]


def why_not(place: StorePlace, change: HistoryChange) -> str:
    """Why no commits can be searched here; "" where they can."""
    if not gap_sentence(change):
        return "the change came with one commit: nothing lies between"
    if place.why_not_written:
        return f"what is captured is recorded, and {place.why_not_written}"
    if not factories():
        return "start `memplan dashboard --factory package.module:factory` in the repository"
    if find_spec("torch") is None:
        return "capturing needs torch: pip install 'memplan[torch]'"
    try:
        top = work_tree()
        if top is None:
            return "the dashboard was not started in the repository"
        for point in (change.before, change.after):
            known_commit(top, point.run.commit)
    except MemplanError as error:
        return str(error)
    return ""


def show_bisect(place: StorePlace, change: HistoryChange) -> None:
    """The button, which asks for the factory; without one, why."""
    reason = why_not(place, change)
    if reason:
        told = plain(f"Not here: {reason}.")
        st.button("Bisect", icon=":material/call_split:", disabled=True, key="bisect_not", help=told)
        return
    with st.popover("Bisect", icon=":material/call_split:"):
        st.caption(
            "Commits between the two are checked out in temporary work trees, captured and recorded; the "
            "stretch that grew most is split until it is one commit."
        )
        with st.form("bisect_form", border=False):
            known = factories()
            model = change.after.series.model
            first = next((number for number, each in enumerate(known) if model in each), 0)
            factory = st.selectbox("Factory", known, index=first)
            training = st.selectbox("Graph", list(TRAINING), format_func=TRAINING.__getitem__)
            if st.form_submit_button("Start", type="primary"):
                _begin(place, change, factory or known[0], training or "")


def _begin(place: StorePlace, change: HistoryChange, factory: str, training: str) -> None:
    series, run = change.after.series, change.after.run
    location = str(place.path.resolve()) if place.path else place.location
    asked = BisectAsked(
        location, str(Path.cwd()), factory, change.before.run.commit, run.commit, run.branch, series.project,
        series.model, series.variant, series.strategy, series.options, training,
    )  # fmt: skip
    job = st.session_state[JOB] = BisectJob(searches.session_id(), asked, person=uploads.visitor())
    scheduler().submit(job)
    st.rerun()


def show_bisection(place: StorePlace) -> None:
    """What becomes of the session's search."""
    job: BisectJob | None = st.session_state.get(JOB)
    if job is not None:
        active = job.state.is_active
        st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(place, job, active)


def _panel(place: StorePlace, job: BisectJob, was_active: bool) -> None:
    if was_active and not job.state.is_active:
        # What was captured is in the store.
        stores.forget(place)
        state.run_again()
    with st.container(border=True, key="bisection"):
        asked = job.asked
        st.markdown(f"**Bisection** :gray[{plain(f'{asked.good[:7]} to {asked.bad[:7]}, {asked.factory}')}]")
        if job.state is State.FAILED:
            show_error(job.fault)
        elif job.state is State.CANCELLED:
            st.info("The bisection was cancelled; what was recorded stays.")
        elif job.state is State.DONE:
            st.markdown("\n".join(f"- {plain(each)}" for each in job.sentences))
        else:
            waits = job.state is State.WAITING
            told = f"waiting: {searches.turn_text(scheduler(), job)}" if waits else job.part or "starting"
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(plain(f"{told} · {job.seconds:.0f} s"))
                if st.button("Cancel", icon=":material/stop_circle:", key="bisect_cancel"):
                    job.cancel()
                    st.rerun()
