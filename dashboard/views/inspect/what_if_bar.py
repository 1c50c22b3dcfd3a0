"""What the changes come to, above the chart: before → after, undo, redo, reset."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import scenarios
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.scenarios import Changed

from memplan_engine import Scenario
from memplan_engine.reporters.what_if_tables import ROWS, signed
from memplan_engine.units import format_bytes

HELP = {
    "arena": "What must be allocated.",
    "demand": "The most bytes alive at one step.",
    "packing loss": "Arena minus demand.",
    "lower bound": "No arena can be smaller.",
}


def show_bar(found: Changed, before: Facts | None, after: Facts | None) -> None:
    """Nothing while there is no change, done or undone."""
    scenario = found.scenario
    if not (scenario.edits or scenario.undone):
        return
    with st.container(border=True, key="what_if_bar"):
        left, right = st.columns([3, 2], vertical_alignment="center")
        count = len(scenario.edits)
        left.markdown(f"**What if**: {count} change{'s' * (count != 1)}")
        with right:
            _buttons(scenario)
        if before is not None and after is not None and scenario.edits:
            _figures(before, after)


def _buttons(scenario: Scenario) -> None:
    with st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        for label, icon, able, then in (
            ("Undo", "undo", scenario.edits, scenario.undo()),
            ("Redo", "redo", scenario.undone, scenario.redo()),
            ("Reset", "restart_alt", scenario.edits, Scenario()),
        ):
            st.button(
                label,
                icon=f":material/{icon}:",
                key=f"what_if_{label.lower()}",
                disabled=not able,
                on_click=scenarios.take,
                args=(then,),
            )


def _figures(before: Facts, after: Facts) -> None:
    old, new = before.figures, after.figures
    row = st.container(key="figures_what_if").columns(len(ROWS), gap="small")
    for column, (label, field) in zip(row, ROWS.items(), strict=True):
        was, now = getattr(old, field), getattr(new, field)
        column.metric(
            f"{label[:1].upper()}{label[1:]}, before → after",
            f"{format_bytes(was)} → {format_bytes(now)}" if was != now else format_bytes(now),
            signed(now - was) if was != now else "unchanged",
            delta_color="inverse" if was != now else "off",
            delta_arrow="auto" if was != now else "off",
            help=HELP[label],
        )
    if new.workspace:
        with_it = f"{format_bytes(old.total)} → {format_bytes(new.total)}"
        st.caption(
            plain(f"with {format_bytes(new.workspace)} of {new.workspace_name} beside the arena: {with_it}")
        )
    if after.plan.strategy != before.plan.strategy:
        st.caption(plain(f"before: {before.plan.strategy}; after: {after.plan.strategy}"))
