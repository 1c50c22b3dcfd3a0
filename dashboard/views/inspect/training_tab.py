"""A training step: what is saved for backward, the peak of each phase, and another partition beside it."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import phase_areas
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.controls import QUIET, chooses
from memplan_dashboard.widgets.tables import show_table, whole

from memplan_engine import Graph, MemplanError, Problem
from memplan_engine.analysis.training_phases import (
    MinCutDifference,
    Saved,
    min_cut_difference,
    phase_steps,
    saved_activations,
)
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.fx_estimator.fx_estimates import COUNTED
from memplan_engine.plotting.colouring import SAVED, by_phase
from memplan_engine.units import format_bytes, format_percent

MOST_ROWS = 1_000


def show_training(facts: PlanFacts, graph: Graph) -> None:
    """Saved activations and phases of `graph`, that of the document; then the difference to another one."""
    _phases(facts, graph)
    areas = areas_of(facts.plan.problem)
    st.plotly_chart(phase_areas.figure(areas), key="phase_areas", config={"displayModeBar": False})
    _estimates(facts.document.about)
    _compare(facts, graph)


def areas_of(problem: Problem) -> phase_areas.Areas:
    """Live bytes by phase, the saved activations lowest."""
    colouring = by_phase(problem)
    labels = sorted(colouring.legend, key=lambda entry: entry[0] != SAVED)
    return phase_areas.data(problem, colouring.index, labels, [light for light, _ in colouring.palette])


def _phases(facts: PlanFacts, graph: Graph) -> None:
    saved = saved_activations(graph)
    nbytes = {storage.name: storage.nbytes for storage in graph.storages}
    profile, origin = facts.profile, facts.plan.problem.origin
    assert origin, "a document's graph is where its problem comes from"
    starts = profile.sections.bounds[:-1]
    ends = profile.sections.bounds[1:]
    stretches = phase_steps(graph, origin.schedule)
    row = st.container(key="figures_training").columns(1 + len(stretches))
    row[0].metric(
        "Saved for backward",
        format_bytes(sum(nbytes[name] for name in saved)),
        f"{len(saved):,} storages",
        **QUIET,
        help="Made by the forward pass, read by the backward pass, and so alive between them.",
    )
    for column, (phase, spans) in zip(row[1:], stretches.items(), strict=True):
        inside = [(starts < end) & (ends > start) for start, end in spans]
        top = max(int(profile.live[mask].max(initial=0)) for mask in inside)
        steps = sum(end - start for start, end in spans)
        column.metric(f"Peak in {phase}", format_bytes(top), f"{steps:,} steps", **QUIET)


def _estimates(about: About) -> None:
    """What the FX memory estimator said when the graph was captured."""
    if not about.estimates:
        return
    st.caption(
        "PyTorch's FX memory estimator on the graphs behind this one. Counted: "
        f"{COUNTED}. By storages, with unread values held, is what fx.Interpreter needs, to the byte."
    )
    st.dataframe(
        pd.DataFrame(
            {
                "aliasing rule": [each.rule for each in about.estimates],
                "values that nobody reads": [each.unread for each in about.estimates],
                "forward peak": [format_bytes(each.forward_peak) for each in about.estimates],
                "baseline": [format_bytes(each.baseline) for each in about.estimates],
                "backward peak": [format_bytes(each.backward_peak) for each in about.estimates],
                "peak, bytes": [max(each.forward_peak, each.backward_peak) for each in about.estimates],
            }
        ),
        hide_index=True,
        column_config=whole("peak, bytes"),
    )


def _compare(facts: PlanFacts, graph: Graph) -> None:
    labels = {key: label for key, label in documents.catalogue().items() if key != facts.document.key}
    other = state.get("other")
    st.selectbox(
        "Compare with another partition of the same model",
        list(labels),
        format_func=labels.__getitem__,
        placeholder="such as the min-cut partition",
        index=None,
        **chooses("other", other if other in labels else None),
    )
    if other not in labels:
        return
    with errors_shown():
        theirs = state.load_document(other, documents.Options()).graph
        if theirs is None:
            raise MemplanError(f"{labels[other]}: found buffers without a graph, expected a training graph")
        difference = min_cut_difference(graph, theirs)
        _difference(difference, documents.catalogue().get(facts.document.key, "this graph"), labels[other])


def _difference(difference: MinCutDifference, mine: str, theirs: str) -> None:
    here, there = difference.default, difference.min_cut
    rows = pd.DataFrame(
        {
            "graph": [mine, theirs],
            "saved for backward": [format_bytes(each.saved_bytes) for each in (here, there)],
            "peak": [format_bytes(each.peak_bytes) for each in (here, there)],
            "at step": [each.peak_step for each in (here, there)],
            "in": [str(each.peak_phase or "") for each in (here, there)],
            "ops run again": [len(difference.recomputed_by_default), len(difference.recomputed)],
            "ops moved to backward": [0, len(difference.moved_to_backward)],
        }
    )
    if here.saved_bytes and here.peak_bytes:
        saved, peak = (1 - there.saved_bytes / here.saved_bytes, 1 - there.peak_bytes / here.peak_bytes)
        st.caption(
            plain(
                f"{theirs} saves {_less(saved)} activations and peaks {_less(peak)} than {mine}; it runs "
                f"{len(difference.recomputed):,} ops again."
            )
        )
    st.dataframe(rows, hide_index=True)
    with st.container(key="halves_training"):
        left, right = st.columns(2, gap="medium")
    with left:
        _saved(f"saved by {mine} only", difference.only_default)
    with right:
        _saved(f"saved by {theirs} only", difference.only_min_cut)


def _less(share: float) -> str:
    return f"{format_percent(abs(share))} {'less' if share >= 0 else 'more'}"


def _saved(title: str, saved: tuple[Saved, ...]) -> None:
    total = sum(each.nbytes for each in saved)
    st.caption(plain(f"{title}: {len(saved):,} storages, {format_bytes(total)}"))
    shown = saved[:MOST_ROWS]
    rows = pd.DataFrame(
        {
            "storage": [each.name for each in shown],
            "size": [format_bytes(each.nbytes) for each in shown],
            "bytes": [each.nbytes for each in shown],
        }
    )
    show_table(rows, whole("bytes"), most=320)
