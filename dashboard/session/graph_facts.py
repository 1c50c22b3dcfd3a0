"""What is worked out once of a graph, for all sessions: reuse, and plans over the range of its symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import Facts
from memplan_dashboard.session.state import AUTO_SECONDS, facts_of

from memplan_engine import Graph, MemplanError, Plan, SolveLimits
from memplan_engine.preparation import Preparation, prepared_graph, range_options
from memplan_engine.rewrites.reuse import Saving, savings
from memplan_engine.strategies import known_strategies
from memplan_engine.symbolic import (
    BucketTable,
    MemorySchema,
    RangeReport,
    Sweep,
    plan_buckets,
    revalidate,
    schema_of,
    sweep,
)

POINTS = 24
OF_DOCUMENT: dict[str | type[Any], Callable[[Any], Any]] = {Document: id}
"""By identity: the entry holds the document, so that its id cannot become another's."""


@st.cache_resource(max_entries=12, show_spinner="Looking for reuse …", hash_funcs=OF_DOCUMENT)
def savings_of(document: Document) -> tuple[Saving, ...]:
    """What reuse saves on the graph of `document`, planned by `auto`; raises MemplanError."""
    how = document.options.how
    graph = prepared_graph(_graph(document), how)
    return savings(graph, limits=SolveLimits(AUTO_SECONDS), **range_options(graph, how))


@st.cache_resource(max_entries=24, show_spinner="Planning over the range …", hash_funcs=OF_DOCUMENT)
def sweep_of(document: Document, symbol: str, strategy: str) -> Sweep:
    """The arena over `symbol`, the others where the sliders are; raises MemplanError."""
    how, graph = document.options.how, _graph(document)
    at = {name: value for name, value in how.symbols if name != symbol}
    return sweep(graph, symbol, None, _known(strategy), at=at, points=POINTS, **_asked(graph, how))


def range_of(facts: Facts) -> RangeReport:
    """Whether the offsets of the plan that is shown hold over the symbols' range; raises MemplanError."""
    document, plan = facts.document, facts.plan
    _asked(_graph(document), document.options.how)
    known = plan.strategy in known_strategies()
    return _range(document, plan if known else facts_of(document, "auto").plan)


@st.cache_resource(
    max_entries=24,
    show_spinner="Checking the range …",
    hash_funcs={**OF_DOCUMENT, Plan: lambda plan: plan.offsets.tobytes()},
)
def _range(document: Document, plan: Plan) -> RangeReport:
    return revalidate(plan)


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=OF_DOCUMENT)
def schema_of_document(document: Document) -> MemorySchema:
    """tract's memory schema of the graph, decided at the hints; raises MemplanError."""
    graph = _graph(document)
    return schema_of(graph, None, **_asked(graph, document.options.how))


@st.cache_resource(max_entries=24, show_spinner="Planning the buckets …", hash_funcs=OF_DOCUMENT)
def buckets_of(document: Document, symbol: str, highs: tuple[int, ...], strategy: str) -> BucketTable:
    """A plan for each bucket of `symbol`; raises MemplanError."""
    how, graph = document.options.how, _graph(document)
    at = {name: value for name, value in how.symbols if name != symbol}
    return plan_buckets(graph, symbol, highs, _known(strategy), values=at, **_asked(graph, how))


def _graph(document: Document) -> Graph:
    if not isinstance(document.loaded, Graph):
        raise MemplanError(f"{document.label}: found no graph, expected one: buffers have no ops")
    return document.loaded


def _known(strategy: str) -> str:
    return strategy if strategy in known_strategies() else "auto"


def _asked(graph: Graph, how: Preparation) -> dict[str, Any]:
    """What of the options a problem over a range can take; raises MemplanError for what it cannot."""
    if how.in_place or how.concat or how.round_sizes:
        raise MemplanError(
            "sizes: found reuse or rounding switched on, expected options that hold for every value"
        )
    return range_options(graph, how)
