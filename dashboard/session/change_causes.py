"""Why the changes of a history are ones: worked out for those that somebody looks at, and kept by the digests
of both graphs; and the two graphs as documents for the page Diff."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import streamlit as st
from memplan_dashboard.session import documents, state, uploads
from memplan_dashboard.session.messages import file_name
from memplan_dashboard.session.stores import StorePlace, opened

from memplan_engine import Graph, InputError, MemplanError
from memplan_engine.history.blame import NO_GRAPH, Blame, blame_change
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.history.measuring import preparation_of
from memplan_engine.reporters.diff_culprits import line_text
from memplan_engine.reporters.history.change_words import cause_sentences, short_cause
from memplan_engine.strategies import known_strategies

SHORT = SHORT_HASH // 2 + 1
MOST_KEPT = 2_000
"""Causes that are kept for all sessions: a few hundred letters each."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a change is one: `short` in a few words, all `sentences`, the `line` that most of it comes from
    with its `code`, and the `modules` of all tensors that it comes from."""

    short: str
    sentences: tuple[str, ...]
    line: str = ""
    code: str = ""
    modules: tuple[str, ...] = ()

    def lies_in(self, module: str) -> bool:
        """Whether a tensor that it comes from is of a module whose path has `module` in it."""
        return any(module.lower() in each.lower() for each in self.modules)


CauseKey = tuple[str, str, str, int, int]


def _key(change: HistoryChange) -> CauseKey:
    graphs = change.before.fingerprints.graph, change.after.fingerprints.graph
    return *graphs, change.after.series.digest, change.demand, change.arena


@st.cache_resource(show_spinner=False)
def _kept() -> dict[CauseKey, Cause]:
    """By both graphs and how they are planned: what they are compared to is the same in every store."""
    return {}


def known_cause(change: HistoryChange) -> Cause | None:
    """Why, where that has been worked out, or needs no work."""
    if not (change.demand or change.arena) or not all(_key(change)[:2]):
        return _told(blame_change(change, _no_graph))
    return _kept().get(_key(change))


def find_causes(place: StorePlace, changes: Iterable[HistoryChange], seconds: float) -> bool:
    """Work out the causes of `changes` in turn, for about so many seconds, at least one; whether all are
    known now. Raises MemplanError where the store cannot be read."""
    until = time.monotonic() + seconds
    unknown = [change for change in changes if known_cause(change) is None]
    if not unknown:
        return True
    state.wait_for_kernels()
    kept = _kept()
    with opened(place) as history:
        for count, change in enumerate(unknown):
            if count and time.monotonic() > until:
                return False
            kept[_key(change)] = _told(blame_change(change, history.graph))
            for old in list(kept)[:-MOST_KEPT]:
                kept.pop(old, None)
    return True


def _no_graph(digest: str) -> Graph:
    raise InputError("history", f"graph {digest[:12]}", "nobody asked for it", NO_GRAPH)


def _told(blame: Blame) -> Cause:
    culprits = blame.explanation.culprits if blame.explanation else ()
    modules = {held.provenance.module for culprit in culprits for held in culprit.buffers}
    line = line_text(blame.line) if blame.line else ""
    code = blame.line.code if blame.line else ""
    return Cause(short_cause(blame), cause_sentences(blame), line, code, tuple(sorted(modules - {""})))


def diff_choices(place: StorePlace, change: HistoryChange) -> dict[str, str]:
    """What the address of Diff says to compare both graphs of `change`, planned as their series has it: from
    now on they are documents of the visitor's.

    Raises
    ------
    InputError: a point was recorded without its graph. MemplanError: no room for them, or no such store.
    """
    keys = {}
    with opened(place) as history:
        for side, point in zip(state.SIDES, (change.before, change.after), strict=True):
            digest = point.fingerprints.graph
            if not digest:
                raise InputError(point.run.label, "", NO_GRAPH, "`memplan history record`, which keeps it")
            name = file_name(f"{point.series.model[:40]}_{point.run.label[:SHORT]}")
            keys[side], _ = uploads.keep(f"{name}.json", history.graph_json(digest))
    series = change.after.series
    asked = {"strategy": series.strategy if series.strategy in known_strategies() else ""}
    # An option that was a file has only its digest here.
    with suppress(MemplanError):
        how = state.option_choices(documents.Options(how=preparation_of(series)))
        own = {name: how[name] for name in state.OF_A_SIDE if name in how}
        asked |= {f"{side}_{name}": value for side in state.SIDES for name, value in own.items()}
    return {**asked, **keys, "changed": "", "kinds": ""}
