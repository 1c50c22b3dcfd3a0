"""What is worked out once of a document for all sessions: plans with figures, reuse, ranges of sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import streamlit as st
from memplan_dashboard.background import jobs
from memplan_dashboard.session import state
from memplan_dashboard.session.documents import Document

from memplan_engine import (
    Graph,
    MemplanError,
    Peak,
    Plan,
    PlanError,
    Profile,
    Report,
    SolveLimits,
    find_peak,
    make_plan,
    make_profile,
    validate_plan,
)
from memplan_engine.analysis.peak import contents_of
from memplan_engine.analysis.plan_figures import PlanFigures, figures_of
from memplan_engine.bounds import Bound
from memplan_engine.plotting.colouring import COLOURINGS, Colouring
from memplan_engine.preparation import PLANNING_OPTIONS, prepared_graph, range_options
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

AUTO_SECONDS = 1.0
"""How long `auto` looks for each plan where many are made at once."""
MOST_SECONDS = 60.0
"""When any other strategy is stopped: longer work belongs on the command line."""
MOST_AT_ONCE = 20_000
"""Buffers: of more the page is drawn first, and then what needs the same core: suggestions, and curves."""
FIRST_OF_MANY_SECONDS = 0.5
"""As jobs.FIRST_SECONDS, of more than MOST_AT_ONCE buffers. `auto` proves 50,000 in 0.3 CPU s; on 200,000 it
finds nothing better between 0.2 s and 2 s: to wait would show the same plan later."""
POINTS = 24
OF_DOCUMENT: dict[str | type[Any], Callable[[Any], Any]] = {Document: attrgetter("number")}
"""Not by `id`: an entry does not hold what it was made of, and the id would become another's."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanFacts:
    """The plan of `document` by `plan.strategy`, with its figures."""

    document: Document
    plan: Plan
    profile: Profile
    report: Report
    peak: Peak
    figures: PlanFigures

    def at(self, step: int | None) -> Peak:
        """What is live at `step`, None for that of the peak."""
        return self.peak if step in (None, self.peak.step) else contents_of(self.plan.problem, step)

    def bounded(self, bound: Bound) -> PlanFacts:
        """The same with another bound."""
        plan = replace(self.plan, bound=bound)
        return replace(self, plan=plan, figures=figures_of(plan, self.profile))


def with_best_bound(several: list[PlanFacts]) -> list[PlanFacts]:
    """The same plans of one problem, each with the best bound that one of them has proved."""
    best = max((facts.plan.bound for facts in several), key=lambda bound: bound.nbytes, default=None)
    return [
        facts if best is None or facts.plan.bound.nbytes == best.nbytes else facts.bounded(best)
        for facts in several
    ]


def make_facts(document: Document, plan: Plan, checked: bool = False) -> PlanFacts:
    """Everything about `plan`: O(n log n). `checked`: it comes from `make_plan`, which has validated it."""
    profile = make_profile(plan.problem, plan.offsets)
    report = Report((), {}) if checked else validate_plan(plan)
    return PlanFacts(document, plan, profile, report, find_peak(plan.problem), figures_of(plan, profile))


def facts_of(document: Document, strategy: str) -> PlanFacts:
    """The plan of `document` by `strategy` and all about it; "imported" is the plan that the file brought.

    Raises MemplanError when the strategy cannot place the problem, or not in the time it has here.
    """
    state.wait_for_kernels()
    return _facts(document, strategy)


def limits_for(document: Document, strategy: str) -> SolveLimits:
    """Return the limits of the first plan of `document` by `strategy`."""
    if not jobs.goes_on(strategy):
        return SolveLimits(MOST_SECONDS)
    return SolveLimits(FIRST_OF_MANY_SECONDS if len(document.problem) > MOST_AT_ONCE else jobs.FIRST_SECONDS)


@st.cache_resource(max_entries=48, show_spinner="Planning …", hash_funcs=OF_DOCUMENT)
def _facts(document: Document, strategy: str) -> PlanFacts:
    if strategy == "imported" and document.plan is not None:
        return make_facts(document, document.plan)
    limits = limits_for(document, strategy)
    try:
        plan = make_plan(document.problem, strategy, limits=limits)
    except PlanError as error:
        if not limits.stopped:
            raise
        raise PlanError(f"{error} (after {limits.seconds:g} s; the command line can take longer)") from error
    return make_facts(document, plan, checked=True)


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=OF_DOCUMENT)
def colouring_of(document: Document, name: str) -> Colouring:
    """One of COLOURINGS: by size, of a million buffers, takes a sixth of a run of the page."""
    return COLOURINGS[name](document.problem)


@st.cache_resource(max_entries=12, show_spinner="Finding reuse …", hash_funcs=OF_DOCUMENT)
def savings_of(document: Document) -> tuple[Saving, ...]:
    """What reuse saves on the graph of `document`, planned by `auto`; raises MemplanError."""
    how = document.options.how
    graph = prepared_graph(_graph(document), how)
    return savings(graph, limits=SolveLimits(AUTO_SECONDS), **range_options(graph, how))


@st.cache_resource(max_entries=24, show_spinner="Planning over the range …", hash_funcs=OF_DOCUMENT)
def sweep_of(document: Document, symbol: str, strategy: str) -> Sweep:
    """The arena over `symbol`, the others where the sliders are; raises MemplanError."""
    graph, at, options = _over(document, symbol)
    return sweep(graph, symbol, None, _known(strategy), at=at, points=POINTS, **options)


def range_of(facts: PlanFacts) -> RangeReport:
    """Whether the offsets of the plan that is shown hold over the symbols' range; raises MemplanError."""
    document, plan = facts.document, facts.plan
    _over(document)
    is_planned_here = plan.strategy in known_strategies()
    return _range(document, plan if is_planned_here else facts_of(document, "auto").plan)


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
    graph, _, options = _over(document)
    return schema_of(graph, None, **options)


@st.cache_resource(max_entries=24, show_spinner="Planning the buckets …", hash_funcs=OF_DOCUMENT)
def buckets_of(document: Document, symbol: str, highs: tuple[int, ...], strategy: str) -> BucketTable:
    """A plan for each bucket of `symbol`; raises MemplanError."""
    graph, at, options = _over(document, symbol)
    return plan_buckets(graph, symbol, highs, _known(strategy), values=at, **options)


def _graph(document: Document) -> Graph:
    if not isinstance(document.loaded, Graph):
        raise MemplanError(f"{document.label}: found no graph, expected one: buffers have no ops")
    return document.loaded


def _known(strategy: str) -> str:
    return strategy if strategy in known_strategies() else "auto"


def _over(document: Document, symbol: str = "") -> tuple[Graph, dict[str, int], dict[str, Any]]:
    """The graph, the values of all symbols but `symbol`, and what of the options a problem over a range can
    take; raises MemplanError for what it cannot."""
    graph, how = _graph(document), document.options.how
    asked = [each.label for each in PLANNING_OPTIONS.values() if each.at_one_size and each.asked(how)]
    if asked:
        found = ", ".join(asked)
        raise MemplanError(f"sizes: found {found} switched on, expected options that hold for every value")
    at = {name: value for name, value in how.symbols if name != symbol}
    return graph, at, dict(range_options(graph, how))
