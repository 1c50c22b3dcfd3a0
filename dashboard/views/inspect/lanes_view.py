"""Of a plan over several banks: all of them as lanes over one time axis, what is proved, which is shown."""

from __future__ import annotations

import base64

import streamlit as st
from memplan_dashboard.session import banked_plans, documents
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import plain
from memplan_dashboard.widgets.controls import chooses

from memplan_engine import BankedPlan
from memplan_engine.plotting.bank_lanes import lanes_svg
from memplan_engine.plotting.figure_style import FigureStyle
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.banks.bank_tables import cost_text, verdict_words
from memplan_engine.reporters.diff_words import sentence_case

WIDTH, LANE, REST = 1280, 150, 130
"""Pixels: of the picture, of each lane, and of what stands around them."""


def show_lanes(document: Document) -> None:
    """Nothing for a document that has one memory."""
    banked = banked_plans.banked_of(documents.path_of(document.key), documents.version_of(document.key))
    if banked is None:
        return
    parts = banked_plans.bank_parts(banked)
    shown = document.options.part or next(iter(parts))
    with st.container(key="bank_lanes"):
        st.markdown(f"**{plain(sentence_case(verdict_words(banked)))}**")
        st.html(_picture(banked, st.context.theme.type == "dark"))
        st.segmented_control(
            "Memory shown below",
            list(parts),
            format_func=lambda part: parts[part],
            **chooses("part", shown, selected="", changed="", what_if=""),
        )


def _identity(plan: BankedPlan) -> tuple[str, bytes, bytes]:
    return plan.problem.fingerprint, plan.bank_of.tobytes(), plan.offsets.tobytes()


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs={BankedPlan: _identity})
def _picture(banked: BankedPlan, dark: bool) -> str:
    """The lanes as an image, which says in words what it shows."""
    height = REST + LANE * len(banked.plans)
    style = FigureStyle(WIDTH, height, theme="dark" if dark else "light", title="Memories")
    source = base64.b64encode(lanes_svg(banked, style).encode()).decode()
    banks = ", ".join(banked_plans.bank_parts(banked).values())
    told = escape(f"{banks}; traffic {cost_text(banked, banked.traffic)}")
    return (
        f'<img class="bank-lanes" src="data:image/svg+xml;base64,{source}" alt="{told}" style="width:100%">'
    )
