"""What a session has changed of the open document: the edits in the address, and the document they make."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import streamlit as st
from memplan_dashboard.session import searches, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import show_error
from memplan_dashboard.session.plan_facts import OF_DOCUMENT, PlanFacts

from memplan_engine import Drop, Edit, FitReport, MemplanError, Plan, Scenario, Split, apply, fit_into
from memplan_engine.feasibility.decision import Core, find_core
from memplan_engine.planner import strategies_for
from memplan_engine.plotting.colouring import Colouring
from memplan_engine.problem import Ints
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.what_if.apply import apply_edits
from memplan_engine.what_if.edits import edits_text, parse_edits

UNDONE = "what_if_undone"
FIT_SECONDS = 1.0
SUGGEST_SECONDS = 2.5
KEEPS_COLOURS = ("module role", "op kind", "role", "module", "phase")
"""Colourings that say where a buffer comes from, which edits do not change."""


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioView:
    """A document after edits: buffer i of `document` was, or is a part of, buffer `source[i]` of `original`.
    Without edits it is the original itself."""

    original: Document
    document: Document
    source: Ints
    scenario: Scenario

    @property
    def is_changed(self) -> bool:
        """Whether there are edits."""
        return bool(self.scenario.edits)

    @property
    def rows(self) -> str:
        """Changes when the buffers are numbered anew."""
        return edits_text([edit for edit in self.scenario.edits if isinstance(edit, Drop | Split)])

    def unchanged(self) -> ScenarioView:
        """The original, while the edits stay in the address."""
        rows = np.arange(len(self.original.problem))
        return replace(self, document=self.original, source=rows, scenario=Scenario())

    def colouring(self, name: str, whole: Colouring, own: Colouring) -> Colouring:
        """`own`, or the colours of the original (`whole`) where they say where a buffer comes from."""
        return replace(whole, index=whole.index[self.source]) if name in KEEPS_COLOURS else own


def scenario_view(document: Document) -> ScenarioView:
    """`document` after the edits of the address; edits that make no sense are explained and dropped."""
    text = state.get("what_if")
    undone: tuple[Edit, ...] = st.session_state.get(UNDONE, ())
    try:
        edits = parse_edits(text, "what if")
        edited, source = _document(document, text) if edits else (document, np.arange(len(document.problem)))
    except MemplanError as error:
        show_error(f"{error}; the changes are left out")
        state.choose(what_if="")
        return ScenarioView(document, document, np.arange(len(document.problem)), Scenario())
    return ScenarioView(document, edited, source, Scenario(edits, undone))


@st.cache_resource(max_entries=24, show_spinner=False, hash_funcs=OF_DOCUMENT)
def _document(document: Document, text: str) -> tuple[Document, Ints]:
    edited = apply_edits(document.problem, parse_edits(text))
    document_after = Document(
        document.key, f"{document.label}, changed", edited.problem, document.options, edited.problem
    )
    return document_after, edited.source


def strategy_for(view: ScenarioView, strategy: str) -> str:
    """`strategy` where it can place what was changed; `auto` for a plan that the file brought."""
    if not view.is_changed or strategy in strategies_for(view.document.problem):
        return strategy
    return "auto"


def original_facts(view: ScenarioView, strategy: str) -> PlanFacts | None:
    """The plan without the changes; None where there is none."""
    try:
        return searches.known_facts(view.original, strategy)
    except MemplanError:
        return None


def take(scenario: Scenario) -> None:
    """Make `scenario` the one in the address."""
    st.session_state[UNDONE] = scenario.undone
    state.choose(what_if=edits_text(scenario.edits))


def attempt(view: ScenarioView, *edits: Edit) -> None:
    """Add edits; raises MemplanError, and changes nothing, where they cannot be made."""
    scenario = view.scenario.add(*edits)
    parse_edits(edits_text(scenario.edits), "what if")
    apply(view.original.problem, scenario.edits)
    take(scenario)
    for edit in edits:
        if edit.buffer == state.get("selected") and isinstance(edit, Drop | Split):
            state.choose(selected=f"{edit.buffer}#1" if isinstance(edit, Split) else "")


# By identity: the entry holds the plan, so that its id cannot become another's.
@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Plan: id})
def core_of(plan: Plan, capacity: int) -> Core:
    """Of the buffers that the bound of `plan` names, those that alone do not fit into `capacity` bytes."""
    return find_core(plan.problem, plan.bound, capacity)


@st.cache_resource(max_entries=32, show_spinner="Searching for the smallest change …", hash_funcs={Plan: id})
def fit_of(plan: Plan, capacity: int) -> FitReport:
    """Whether the problem of `plan` fits into `capacity` bytes, and what would make it."""
    return fit_into(plan, capacity, limits=SolveLimits(FIT_SECONDS), seconds=SUGGEST_SECONDS)
