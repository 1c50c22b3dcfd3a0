"""What the Diff page can ask of one side alone: strategy, streams, reuse, symbols, part of a recording."""

from __future__ import annotations

import streamlit as st

from dashboard import comparing, controls, preparing, state
from dashboard.documents import Document
from dashboard.symbols import pick_symbols
from dashboard.words import plain

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
    asked = preparing.count_asked(how) + len(how.symbols) + bool(document.options.part) + bool(own)
    label = f"Options of {side} ({asked})" if asked else f"Options of {side}"
    with st.popover(label, icon=":material/tune:", width="stretch"):
        _strategy(side, document, [AS_BOTH, *names], own)
        if preparing.can_prepare(document):
            preparing.show_switches(how, f"{side}_")
            pick_symbols(document, f"{side}_")
        else:
            preparing.keep_part(document, f"{side}_")
    return comparing.strategy_of(side, document, both)


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
