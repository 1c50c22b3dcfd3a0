"""A training step: what is saved for backward, the peak of each phase, and another partition beside it."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import phase_areas
from memplan_dashboard.session import documents, state
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.messages import errors_shown, plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.widgets.controls import QUIET, chooses
from memplan_dashboard.widgets.tables import named, show_table, whole

from memplan_engine import Graph, MemplanError, Problem
from memplan_engine.analysis.buffer_names import labels_of
from memplan_engine.analysis.training_phases import (
    MinCutDifference,
    Saved,
    min_cut_difference,
    phase_peaks,
    saved_storages,
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
    saved, peaks = saved_storages(graph), phase_peaks(facts.plan.problem)
    row = st.container(key="figures_training").columns(1 + len(peaks))
    row[0].metric(
        "Saved for backward",
        format_bytes(sum(each.nbytes for each in saved)),
        f"{len(saved):,} storages",
        **QUIET,
        help="Produced by the forward pass and read by the backward pass, so live in between.",
    )
    for column, peak in zip(row[1:], peaks, strict=True):
        size = format_bytes(peak.peak_bytes)
        column.metric(f"Peak in {peak.phase}", size, f"{peak.steps:,} steps", **QUIET)


def _estimates(about: About) -> None:
    """What the FX memory estimator said when the graph was captured."""
    if not about.estimates:
        return
    st.caption(
        "PyTorch's FX memory estimator on the graphs behind this one. Counted: "
        f"{COUNTED}. By storages, with unused values kept alive, it is what fx.Interpreter needs, to "
        f"the byte."
    )
    st.dataframe(
        pd.DataFrame(
            {
                "aliasing rule": [each.rule for each in about.estimates],
                "unused values": [each.unread for each in about.estimates],
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
        theirs = state.load_document(other, documents.Options())
        if theirs.graph is None:
            raise MemplanError(f"{labels[other]}: found buffers without a graph, expected a training graph")
        _difference(facts.document, theirs, min_cut_difference(graph, theirs.graph))


def _difference(document: Document, other: Document, difference: MinCutDifference) -> None:
    labels = documents.catalogue()
    mine, theirs = labels.get(document.key, "this graph"), labels.get(other.key, "the other")
    here, there = difference.default, difference.min_cut
    rows = pd.DataFrame(
        {
            "graph": [mine, theirs],
            "saved for backward": [format_bytes(each.saved_bytes) for each in (here, there)],
            "peak": [format_bytes(each.peak_bytes) for each in (here, there)],
            "at step": [each.peak_step for each in (here, there)],
            "in": [str(each.peak_phase or "") for each in (here, there)],
            "ops recomputed": [len(difference.recomputed_by_default), len(difference.recomputed)],
            "ops moved to backward": [0, len(difference.moved_to_backward)],
        }
    )
    if here.saved_bytes and here.peak_bytes:
        saved, peak = (1 - there.saved_bytes / here.saved_bytes, 1 - there.peak_bytes / here.peak_bytes)
        st.caption(
            plain(
                f"{theirs} saves {_less(saved)} activations and peaks {_less(peak)} than {mine}; it "
                f"recomputes {len(difference.recomputed):,} ops."
            )
        )
    st.dataframe(rows, hide_index=True)
    with st.container(key="halves_training"):
        left, right = st.columns(2, gap="medium")
    with left:
        _saved(f"saved by {mine} only", difference.only_default, document.problem)
    with right:
        _saved(f"saved by {theirs} only", difference.only_min_cut, other.problem)


def _less(share: float) -> str:
    return f"{format_percent(abs(share))} {'less' if share >= 0 else 'more'}"


def _saved(title: str, saved: tuple[Saved, ...], by: Problem) -> None:
    total = sum(each.nbytes for each in saved)
    st.caption(plain(f"{title}: {len(saved):,} storages, {format_bytes(total)}"))
    shown = saved[:MOST_ROWS]
    rows = pd.DataFrame(
        {
            **named("storage", [each.name for each in shown], labels_of(by)),
            "size": [format_bytes(each.nbytes) for each in shown],
            "bytes": [each.nbytes for each in shown],
        }
    )
    show_table(rows, whole("bytes"), most=320)
