"""Replay: a strategy's decisions one by one, a guess at each of them, or all of it placed by hand."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.replay_view import Mode, replay_view
from memplan_dashboard.session import state
from memplan_dashboard.session.messages import NOTHING_TO_PLACE, plain, show_error, show_note
from memplan_dashboard.views import replay_choices
from memplan_dashboard.views.replay_keep import show_keep
from memplan_dashboard.views.replay_order import show_order
from memplan_dashboard.widgets import controls, lessons

from memplan_engine import MemplanError
from memplan_engine.analysis.claims import counted
from memplan_engine.graph import NO_WORKSPACE
from memplan_engine.profile import workspace_of

MODES = {
    Mode.REPLAY: ":material/play_circle: Replay",
    Mode.PREDICT: ":material/ads_click: Predict",
    Mode.EXERCISE: ":material/pan_tool: By hand",
    Mode.ORDER: ":material/swap_vert: Order",
    Mode.KEEP: ":material/replay: Keep",
}


def _page() -> None:
    replay_choices.choose_first_problem()
    document = state.current_document()
    lessons.show_lesson()
    row = controls.row([2.1, 1.6, 2.7])
    with row[0]:
        replay_choices.pick_problem()
    problem = document.problem
    if not len(problem):
        st.info(NOTHING_TO_PLACE)
        return
    with row[1]:
        strategy = replay_choices.pick_strategy(problem)
    try:
        decider = replay_choices.decider_of(document, strategy)
        with row[2]:
            mode = replay_choices.pick_mode(document, decider.name, MODES)
        if mode == Mode.ORDER:
            show_order(document)
            return
        if mode == Mode.KEEP:
            show_keep(document)
            return
        scene = replay_choices.make_scene(document, decider, mode)
    except MemplanError as error:
        show_error(error)
        return
    show_note(scene.note)
    if decider.told and mode != Mode.EXERCISE:
        st.caption(plain(decider.told))
    replay_view(
        scene.message,
        serial=scene.serial,
        key="replay_view",
        on_step=replay_choices.keep_step,
        on_answer=lambda step: lessons.take_answer(step, scene.steps),
    )
    beside = workspace_of(problem) != NO_WORKSPACE
    told = ". A replay places storages; temporaries and workspaces lie outside them" * beside
    st.caption(plain(f"Counted: {counted(problem)}{told}."))


_page()
