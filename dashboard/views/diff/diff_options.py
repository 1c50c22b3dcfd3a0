"""What the Diff page can ask of one side alone: strategy, streams, reuse, symbols, part of a recording."""

from __future__ import annotations

import streamlit as st
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.markdown_text import plain
from memplan_dashboard.views.diff import diff_choices
from memplan_dashboard.widgets import controls, planning_options
from memplan_dashboard.widgets.symbol_sliders import pick_symbols

AS_BOTH = ""


def pick_options(side: str, document: Document, both: str) -> str:
    """A popover with the options of `side`; gives what plans it: `both` unless it has its own strategy."""
    names, own = controls.strategy_names(document), state.get(f"{side}_strategy")
    if own and own not in names:
        st.error(
            plain(f"{side}_strategy: found {own[:40]!r}, expected one of those in the list"),
            icon=":material/error:",
        )
        state.choose(**{f"{side}_strategy": ""})
        own = AS_BOTH
    how = document.options.how
    asked = planning_options.count_asked(how) + len(how.symbols) + bool(document.options.part) + bool(own)
    label = f"Options of {side} ({asked})" if asked else f"Options of {side}"
    with st.popover(label, icon=":material/tune:", width="stretch"):
        _strategy(side, document, [AS_BOTH, *names], own)
        if planning_options.can_prepare(document):
            planning_options.show_switches(how, f"{side}_")
            pick_symbols(document, f"{side}_")
        else:
            planning_options.keep_part(document, f"{side}_")
    return diff_choices.strategy_of(side, document, both)


def _strategy(side: str, document: Document, names: list[str], own: str) -> None:
    key, label = f"{side}_strategy_widget", controls.strategy_label(document)
    st.session_state[key] = own

    def picked() -> None:
        state.choose(**{f"{side}_strategy": st.session_state[key]})

    st.selectbox(
        f"Strategy of {side} alone",
        names,
        format_func=lambda name: label(name) if name else "that of both sides",
        key=key,
        on_change=picked,
    )
