"""The plan that Inspect is going to show, begun when a browser asks for the page: it loads Streamlit's
scripts for about a second before it opens a session, and the server has nothing else to do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

import streamlit as st
from memplan_dashboard.serving.first_paint import asked_for
from memplan_dashboard.session import plan_facts, state
from memplan_dashboard.widgets.controls import strategy_or_first
from memplan_dashboard.widgets.panes_of import panes_of
from memplan_dashboard.widgets.plan_panels import has_panes

from memplan_engine import MemplanError

EVERYBODYS = ("file", "example", "folder")
"""Documents that are not a visitor's own: who asks is not known before there is a session."""
_turn = threading.Lock()
"""One at a time: a crowd that asks for pages gets them planned when they open."""


@st.cache_resource(show_spinner=False)
def listen() -> None:
    """Begin whenever a page is asked for, from now on."""
    asked_for.append(begin)


def begin(path: str, query: Mapping[str, str]) -> None:
    """Plan in a thread what the page at `path` shows, where that is Inspect."""
    if path == "/" and _turn.acquire(blocking=False):
        threading.Thread(target=_take_turn, args=(query,), name="head start", daemon=True).start()


def _take_turn(query: Mapping[str, str]) -> None:
    try:
        choices = state.choices_in(query)
        if choices["doc"].partition(":")[0] in (*EVERYBODYS, ""):
            state.start_compiling().join()
            # What is wrong with the document the page will say.
            with suppress(MemplanError):
                _plan(tuple(sorted(choices.items())))
    finally:
        _turn.release()


# Cached functions show a spinner, which needs a session, unless another one calls them.
@st.cache_resource(max_entries=1, show_spinner=False)
def _plan(choices: tuple[tuple[str, str], ...]) -> None:
    """Into the caches that the page looks into; a page that comes meanwhile waits for the same work."""
    chosen = dict(choices)
    document = state.load_document(state.document_in(chosen), state.parse_options(chosen))
    problem = document.problem
    if has_panes(problem):
        # Beside the plan, whose kernels do not hold Python's lock.
        threading.Thread(target=panes_of, args=(problem,), name="panes", daemon=True).start()
    plan_facts.facts_of(document, strategy_or_first(document, chosen["strategy"]))
