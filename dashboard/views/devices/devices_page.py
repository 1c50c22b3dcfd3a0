"""Devices: does each rank of a distributed run fit on its device, and which one runs out first?"""

from __future__ import annotations

import shlex

import streamlit as st
from memplan_dashboard.session import rank_runs, state, uploads
from memplan_dashboard.session.messages import errors_shown, show_error
from memplan_dashboard.views.devices.devices_result import (
    show_answer,
    show_chart,
    show_configurations,
    show_held,
    show_ranks,
)
from memplan_dashboard.views.devices.ranks_start import show_start
from memplan_dashboard.views.devices.serving_result import show_serving
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.controls import chooses

from memplan_engine import MemplanError
from memplan_engine.accelerators.presets import PRESETS, USUAL, accelerator
from memplan_engine.devices.rank_answers import RankAnswer

MOST_SIDE_BY_SIDE = 6
OWN = (
    "This server runs nothing that is uploaded. Run your own script with `memplan devices train.py --world 8 "
    "-o ranks`, zip the folder (`python -m zipfile -c ranks.zip ranks/*`) and open the zip here; or start "
    "`memplan dashboard ranks`."
)


def _upload() -> None:
    with st.expander("Open the ranks of your own script", icon=":material/upload_file:"):
        st.caption(OWN)
        uploaded = st.file_uploader("A zip of the folder", key="ranks_uploader", help=uploads.RULES)
        if uploaded is None or uploaded.file_id == st.session_state.get("ranks_uploaded"):
            return
        try:
            key = uploads.keep_readable(
                uploaded.name, uploaded.getvalue(), rank_runs.open_ranks, rank_runs.KIND
            )
        except MemplanError as error:
            show_error(error)
            return
        st.session_state.ranks_uploaded = uploaded.file_id
        state.choose(ranks=key, rank="")
        st.rerun()


def _pick(known: dict[str, str]) -> tuple[str, str]:
    """The configuration and the device that are chosen."""
    columns = controls.row([2.2, 1.4, 1.8, 1])
    key = state.get("ranks") or next(iter(known), "")
    with columns[0]:
        controls.pick_key(
            "Configuration", known, key, "ranks_widget", lambda name: state.choose(ranks=name, rank="")
        )
    with columns[1]:
        gpu = state.get("gpu") if state.get("gpu") in PRESETS else USUAL
        st.selectbox(
            "Device of each rank",
            list(PRESETS),
            help="Its usable bytes, as PyTorch's error messages report them.",
            **chooses("gpu", gpu, text=lambda name: "" if name == USUAL else name),
        )
    with columns[2]:
        controls.pick_settings()
    with columns[3]:
        controls.pick_headroom()
    return key, gpu


def _compared(key: str, known: dict[str, str]) -> list[str]:
    """Which configurations stand beside `key`: those of the address, else others of its sweep."""
    chosen = state.get("with").split(",") if state.get("with") else rank_runs.of_the_same_sweep(key)
    asked = [name for name in chosen if name in known and name != key][:MOST_SIDE_BY_SIDE]
    st.multiselect(
        "Side by side with",
        [name for name in known if name != key],
        format_func=known.__getitem__,
        max_selections=MOST_SIDE_BY_SIDE,
        placeholder="pick configurations",
        **chooses("with", asked, text=",".join),
    )
    return asked


def _chosen(ranks: tuple[RankAnswer, ...], fullest: RankAnswer) -> RankAnswer:
    asked = state.get("rank")
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else -1
    found = next((each for each in ranks if number in each.run.ranks), None)
    if asked and found is None:
        show_error(f"rank: found {asked[:40]!r}, expected the number of a rank of this run")
    return found or fullest


def _page() -> None:
    known = rank_runs.catalogue()
    key, gpu = _pick(known)
    with errors_shown():
        if not key:
            st.info("Nothing is recorded yet: open the ranks of a script below.", icon=":material/info:")
            return
        asked = gpu, state.get("settings"), state.get("headroom")
        answers = rank_runs.answers_of(key, *asked)
        device = accelerator(gpu)
        chosen = _chosen(answers.ranks, answers.fullest)
        show_answer(answers, device, rank_runs.label_of(key))
        show_serving(answers, device)
        left, right = st.container(key="halves_devices").columns([2.3, 1], gap="large")
        with left:
            show_chart(chosen)
        with right:
            show_held(chosen)
        show_ranks(answers, chosen)
        others = _compared(key, known)
        sides = [(rank_runs.label_of(key), answers)]
        for name in others:
            with errors_shown(known[name]):
                sides.append((known[name], rank_runs.answers_of(name, *asked)))
        show_configurations(sides, device)
        words = ["memplan", "devices", "ranks", "--device", gpu]
        words += ["-s", asked[1]] if asked[1] else []
        words += ["--headroom", asked[2]] if asked[2] else []
        st.code(shlex.join(words), language=None, wrap_lines=True)


_page()
show_start()
_upload()
