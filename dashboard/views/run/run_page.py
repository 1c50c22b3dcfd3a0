"""Run: a model runs inside its plan; predicted, dispatched and allocated bytes lie on one axis."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.background.jobs import State
from memplan_dashboard.background.run_job import RunJob
from memplan_dashboard.session import searches, state, uploads
from memplan_dashboard.session.messages import errors_shown, plain, show_error, show_note
from memplan_dashboard.views.run import run_choices
from memplan_dashboard.views.run.run_result import show_run
from memplan_dashboard.widgets.controls import bound, chooses, pick_key, row
from memplan_examples.small import MODELS

from memplan_engine import MemplanError
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.strategies import known_strategies

FLAGS = {
    "all": "Everything in the slab",
    "functional": "Without in-place ops",
    "check": "Safety mode",
    "profile": "Time it",
    "order": "Best order of the ops",
}
ABOUT = {
    "all": "Policy all: outputs that cannot be written in place are copied into the slab. Without it only "
    "outputs that are written in place lie there.",
    "functional": "The functional form of the graph.",
    "check": "Poisoned memory, guard bytes, and every byte compared after every op.",
    "order": "The order with the lowest peak found within 10 s, proved optimal where possible.",
    "profile": "Against the original model and torch's interpreter, interleaved.",
}
OWN = (
    "This server runs nothing that is uploaded. Run your own model with `memplan run file.py:factory -o "
    "run.json` and open the file here; observations (`--observation`, `write_observation`) open, too."
)

EVERY_SECONDS = 0.5
TAKEN = "Only a run or an observation in JSON can be opened here. What was open before is still shown below."


def _pick_strategy(current: str) -> None:
    st.selectbox(
        "Strategy",
        list(known_strategies()),
        **chooses("run_strategy", current, text=lambda name: "" if name == "auto" else name),
    )


def _pick_flags() -> None:
    chosen = set(state.get("run_how").split(","))

    def take(_: bool) -> None:
        on = [name for name in FLAGS if st.session_state[f"run_{name}"]]
        state.choose(run_how=",".join(on))

    with st.container(key="options"), st.popover("Options", icon=":material/tune:", width="stretch"):
        for name, label in FLAGS.items():
            st.checkbox(label, help=ABOUT[name], **bound(f"run_{name}", name in chosen, take))


def _upload() -> None:
    """Take a file of a run; the page then shows it."""
    with st.expander("Open a run of your own model", icon=":material/upload_file:"):
        st.caption(OWN)
        uploaded = st.file_uploader("A run or an observation, JSON", key="run_uploader", help=uploads.RULES)
        taken = st.session_state.get("run_uploaded")
        if uploaded is None or uploaded.file_id == taken:
            return
        try:
            key = uploads.keep_readable(uploaded.name, uploaded.getvalue(), run_choices.open_file, "run")
        except MemplanError as error:
            show_error(f"{error}. {TAKEN}")
            return
        st.session_state.run_uploaded = uploaded.file_id
        state.choose(run=key)
        st.rerun()


def _pick_device(runs: dict[int, RunFile]) -> int:
    """Which device of an observation is shown: the accelerator with the highest number unless the
    address says another."""
    devices = {str(device): device for device in runs}
    if len(devices) < 2:
        return next(iter(runs))
    asked = state.get("run_device")
    current = asked if asked in devices else str(max(runs))

    def label(text: str) -> str:
        return "the CPU" if devices[text] < 0 else f"device {text}"

    st.segmented_control("Memory of", list(devices), format_func=label, **chooses("run_device", current))
    return devices[st.session_state.run_device_widget or str(max(runs))]


def _file(key: str) -> None:
    with errors_shown():
        runs = run_choices.open_file(key)
        run = runs[_pick_device(runs)]
        st.caption(plain(f"{run.name}, {len(run.ops):,} ops"))
        show_run(run)


def _show_progress(job: RunJob) -> None:
    """The line, looked at anew while the run goes on; why it failed, or that it was ended."""
    active = job.state.is_active
    st.fragment(_panel, run_every=EVERY_SECONDS if active else None)(job, active)


def _panel(job: RunJob, was_active: bool) -> None:
    if was_active and not job.state.is_active:
        state.run_again()
    if job.state is State.FAILED:
        show_error(job.fault)
    elif job.state is State.CANCELLED:
        st.info(plain(f"The run of {job.asked.model} was cancelled."))
    elif job.state.is_active:
        with st.container(border=True, key="run_progress", horizontal=True, vertical_alignment="center"):
            st.progress(_share(job), plain(_told(job)))
            if st.button("Cancel", icon=":material/stop_circle:", key="run_cancel"):
                job.cancel()
                st.rerun()


def _share(job: RunJob) -> float:
    parts = run_choices.PARTS
    return (parts.index(job.part) + 0.5) / len(parts) if job.part in parts else 0.0


def _told(job: RunJob) -> str:
    if job.state is State.WAITING:
        turn = searches.turn_text(run_choices.scheduler(), job)
        return f"{job.asked.model}: waiting for its turn, {turn}"
    return f"{job.asked.model}: {job.part or 'starting'} · {job.seconds:.0f} s"


def _model(name: str) -> None:
    obstacle = run_choices.missing(name)
    if obstacle:
        st.warning(plain(obstacle), icon=":material/extension_off:")
        return
    st.caption(f"{plain(run_choices.about(name))} A small configuration with random weights.")
    asked = run_choices.asked_for(name)
    job = run_choices.current_job()
    if job is not None:
        run_choices.forget(job)
        if job.state.is_active or job.asked == asked:
            _show_progress(job)
    running = job.asked if job is not None and job.state.is_active else None
    outcome = run_choices.results().get(asked)
    # What is on its way is not what came before.
    if outcome is not None and running != asked:
        st.caption(plain(outcome.told))
        show_run(outcome.run)
    elif running is None:
        st.info("Press **Run**. PyTorch is loading in the background; the first run may have to wait for it.")
    if running is None:
        run_choices.get_ready()


def _page() -> None:
    key = run_choices.current_key()
    kind, _, name = key.partition(":")
    is_model = kind == run_choices.MODEL
    columns = row([3.4, 1.6, 1.2, 1] if is_model else [3.4, 3.8])
    with columns[0]:
        known = run_choices.catalogue()
        pick_key("Model or file", known, key, "run_widget", lambda picked: state.choose(run=picked))
    if is_model and name in MODELS:
        asked = run_choices.asked_for(name)
        with columns[1]:
            _pick_strategy(asked.strategy)
        with columns[2]:
            _pick_flags()
        with columns[3], st.container(key="run_start"):
            ready = not run_choices.missing(name)
            if st.button("Run", type="primary", icon=":material/play_arrow:", disabled=not ready):
                run_choices.begin(asked)
        show_note(run_choices.wrong_choices(list(FLAGS)))
    _upload()
    if not is_model:
        _file(key)
    elif name in MODELS:
        _model(name)
    else:
        show_error(f"no model {name[:80]}")


_page()
