"""Run: a model runs inside its plan; predicted, dispatched and allocated bytes lie on one axis."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.views.run import run_choices
from memplan_dashboard.views.run.run_progress import show_progress
from memplan_dashboard.views.run.run_result import show_run
from memplan_dashboard.widgets import controls
from memplan_examples.small import MODELS

from memplan_engine import MemplanError
from memplan_engine.formats.memplan_json.run_format import RunFile
from memplan_engine.strategies import known_strategies

FLAGS = {
    "all": "Everything in the slab",
    "functional": "Without in-place ops",
    "check": "Safety mode",
    "profile": "Time it",
}
ABOUT = {
    "all": "Policy all: what cannot be written in place is copied. Else only what can be lies in the slab.",
    "functional": "The functional form of the graph.",
    "check": "Poison, guards, and every byte compared after every op.",
    "profile": "Against the model itself and torch's interpreter, in turns.",
}
OWN = (
    "This server runs nothing that is uploaded. Run your own model with `memplan run file.py:factory -o "
    "run.json` and open the file here; observations (`--observation`, `write_observation`) open, too."
)

TAKEN = "Only a run or an observation in JSON is taken here. Below stays what was open before."


def _pick_source(known: dict[str, str], current: str) -> None:
    if current not in known:
        known = {current: current.partition(":")[2], **known}
    st.session_state.run_widget = current
    st.selectbox(
        "Model or file",
        list(known),
        format_func=known.__getitem__,
        key="run_widget",
        on_change=lambda: state.choose(run=st.session_state.run_widget),
    )


def _pick_strategy(current: str) -> None:
    st.session_state.run_strategy_widget = current

    def changed() -> None:
        chosen = st.session_state.run_strategy_widget
        state.choose(run_strategy="" if chosen == "auto" else chosen)

    st.selectbox("Strategy", list(known_strategies()), key="run_strategy_widget", on_change=changed)


def _pick_flags() -> None:
    chosen = set(state.get("run_how").split(","))

    def changed() -> None:
        on = [name for name in FLAGS if st.session_state[f"run_{name}"]]
        state.choose(run_how=",".join(on))

    with st.container(key="options"), st.popover("Options", icon=":material/tune:", width="stretch"):
        for name, label in FLAGS.items():
            st.session_state[f"run_{name}"] = name in chosen
            st.checkbox(label, key=f"run_{name}", on_change=changed, help=ABOUT[name])


def _upload() -> None:
    """Take a file of a run; the page then shows it."""
    with st.expander("Open a run of your own model", icon=":material/upload_file:"):
        st.caption(OWN)
        uploaded = st.file_uploader("A run or an observation, JSON", key="run_uploader")
        taken = st.session_state.get("run_uploaded")
        if uploaded is None or uploaded.file_id == taken:
            return
        try:
            key = run_choices.keep_upload(uploaded.name, uploaded.getvalue())
        except MemplanError as error:
            st.error(plain(f"{error}. {TAKEN}"), icon=":material/error:")
            return
        st.session_state.run_uploaded = uploaded.file_id
        state.choose(run=key)
        st.rerun()


def _pick_device(found: dict[int, RunFile]) -> int:
    """Which device of an observation is shown: the accelerator with the highest number unless the
    address says another."""
    known = {str(device): device for device in found}
    if len(known) < 2:
        return next(iter(found))
    asked = state.get("run_device")
    st.session_state.run_device_widget = asked if asked in known else max(known, key=known.__getitem__)

    def label(text: str) -> str:
        return "the CPU" if known[text] < 0 else f"device {text}"

    def changed() -> None:
        state.choose(run_device=st.session_state.run_device_widget or "")

    st.segmented_control(
        "Memory of", list(known), format_func=label, key="run_device_widget", on_change=changed
    )
    return known[st.session_state.run_device_widget or max(known, key=known.__getitem__)]


def _file(key: str) -> None:
    try:
        found = run_choices.open_file(key)
    except MemplanError as error:
        st.error(plain(error), icon=":material/error:")
        return
    run = found[_pick_device(found)]
    st.caption(plain(f"{run.name}, {len(run.ops):,} ops"))
    show_run(run)


def _model(name: str) -> None:
    obstacle = run_choices.missing(name)
    if obstacle:
        st.warning(plain(obstacle), icon=":material/extension_off:")
        return
    asked = run_choices.asked_for(name)
    job = run_choices.current_job()
    if job is not None:
        run_choices.collect(job)
        if job.state.is_active or job.asked == asked:
            show_progress(job)
    found = run_choices.results().get(asked)
    if found is not None:
        show_run(found)
    elif job is None or not job.state.is_active:
        st.info("A small configuration with random weights. Press **Run**: it takes a few seconds.")


def _page() -> None:
    key = run_choices.current_key()
    kind, _, name = key.partition(":")
    is_model = kind == run_choices.MODEL
    row = controls.row([3.4, 1.6, 1.2, 1] if is_model else [3.4, 3.8])
    with row[0]:
        _pick_source(run_choices.catalogue(), key)
    if is_model and name in MODELS:
        asked = run_choices.asked_for(name)
        with row[1]:
            _pick_strategy(asked.strategy)
        with row[2]:
            _pick_flags()
        with row[3], st.container(key="run_start"):
            ready = not run_choices.missing(name)
            if st.button("Run", type="primary", icon=":material/play_arrow:", disabled=not ready):
                run_choices.begin(asked)
        controls.show_note(run_choices.wrong_choices(list(FLAGS)))
    _upload()
    if not is_model:
        _file(key)
    elif name in MODELS:
        _model(name)
    else:
        st.error(plain(f"no model {name[:80]}"), icon=":material/error:")


_page()
