"""Zoo: which variants of which models fit, and which do not, from a store of history."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import state, stores
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.views.zoo.zoo_cells import Shown, matching, show_headline, show_matrix
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.controls import chooses

from memplan_engine.zoo.matrix import zoo_matrix

ANY = "the best"
NOTHING = (
    "No store is open. Plan the variants of your models with `memplan zoo zoo.toml`, and open what it has "
    "recorded with `memplan dashboard history.db`."
)


def _pick() -> tuple[str, int | None]:
    """The store and the capacity in bytes, None for none."""
    columns = st.columns([1.6, 1.2, 1.6])
    known = stores.catalogue()
    key = state.get("zoo") or next(iter(known), "")
    with columns[0]:
        if key:
            controls.pick_key(
                "Store", known, key, "zoo_widget", lambda name: state.choose(zoo=name, project="")
            )
    with columns[1]:
        capacity = controls.pick_capacity("room_widget", "Capacity", "room", "24GiB")
    with columns[2]:
        controls.pick_capacity_of_device(capacity, "room", "zoo_device")
    return key, capacity


def _pick_of(
    projects: tuple[str, ...], strategies: list[str], capacity: int | None
) -> tuple[str, str, Shown]:
    """The project, the strategy ("" for the best) and what cells show; beside them the filter."""
    columns = st.columns([1.2, 1.2, 1.4, 1.8])
    project = state.get("project") if state.get("project") in projects else projects[0]
    strategy = state.get("planned") if state.get("planned") in strategies else ""
    choices = [each for each in Shown if each is not Shown.OVER or capacity is not None]
    asked = state.get("cells")
    shown = next((each for each in choices if each.name.lower() == asked), choices[0])
    with columns[0]:
        st.selectbox("Project", projects, **chooses("project", project, filter=""))
    with columns[1]:
        st.selectbox(
            "Planned by",
            ["", *strategies],
            format_func=lambda name: name or ANY,
            **chooses("planned", strategy),
        )
    with columns[2]:
        st.selectbox(
            "Cells show",
            choices,
            format_func=lambda each: each.value,
            **chooses("cells", shown, text=lambda each: "" if each is choices[0] else each.name.lower()),
        )
    with columns[3]:
        st.text_input(
            "Filter",
            placeholder="gpt batch=8",
            max_chars=200,
            help="Words, all of which have to be in the name of the model or in its variant.",
            **chooses("filter", state.get("filter")),
        )
    return project, strategy, shown


def _page() -> None:
    key, capacity = _pick()
    if not key:
        st.info(NOTHING, icon=":material/info:")
        return
    with errors_shown():
        store = stores.place_of(key)
        projects = stores.projects(store)
        if not projects:
            st.info("Nothing is recorded in this store yet.", icon=":material/info:")
            return
        asked = state.get("project")
        points = stores.latest_points(store, asked if asked in projects else projects[0])
        strategies = sorted({point.series.strategy for point in points})
        project, strategy, shown = _pick_of(projects, strategies, capacity)
        matrix = zoo_matrix(matching(points, state.get("filter")), strategy)
        show_headline(matrix, capacity, project)
        if not matrix.cells:
            st.info(plain(f"No variant has all of: {state.get('filter')}"), icon=":material/info:")
            return
        show_matrix(matrix, capacity, shown, store)


_page()
