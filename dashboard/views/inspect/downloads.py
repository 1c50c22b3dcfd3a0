"""The plan that is shown, to take along: a page, vectors, pixels; each is made when it is asked for."""

from __future__ import annotations

import re

import streamlit as st
from memplan_dashboard.session.plan_facts import Facts

from memplan_engine import FigureStyle, ReportNotes
from memplan_engine.plotting.png_figure import to_png
from memplan_engine.plotting.svg_figure import to_svg
from memplan_engine.reporters.html.report_html import to_html


def show_downloads(facts: Facts, colour: str) -> None:
    """Buttons for the report and, in the colouring that is shown, the figures."""
    plan, style = facts.plan, FigureStyle(colour_by=colour)
    name = f"{_file_name(plan.problem.name)}_{plan.strategy}"
    notes = ReportNotes(file=facts.document.label)
    with st.container(key="downloads", horizontal=True, horizontal_alignment="right"):
        st.download_button(
            "Download report",
            lambda: to_html(plan, notes=notes).encode(),
            f"{name}.html",
            "text/html",
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help="One page that opens offline: chart and tables. `memplan report` compares strategies, too.",
        )
        st.download_button(
            "SVG",
            lambda: to_svg(plan, style).encode(),
            f"{name}.svg",
            "image/svg+xml",
            type="tertiary",
            on_click="ignore",
        )
        st.download_button(
            "PNG",
            lambda: to_png(plan, style),
            f"{name}.png",
            "image/png",
            type="tertiary",
            on_click="ignore",
        )


def _file_name(text: str) -> str:
    """`text` as every file system takes it."""
    return re.sub(r"[^\w.+-]", "_", text)[:80] or "plan"
