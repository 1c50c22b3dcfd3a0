"""What came of a run: verdicts, figures, curves, and tables: what lies in the slab, what does not, why."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st
from memplan_dashboard.charts import run_curves
from memplan_dashboard.session.messages import plain
from memplan_dashboard.widgets.controls import QUIET, show_tabs
from memplan_dashboard.widgets.tables import MOST_ROWS, SHARE, WHOLE, show_table, whole

from memplan_engine.formats.memplan_json.run_files import run_bytes
from memplan_engine.formats.memplan_json.run_format import ProfileEntry, RunFile, SlabEntry, peak_of
from memplan_engine.reporters.run_tables import (
    WAYS,
    check_sentence,
    counted_sentence,
    difference_sentence,
    equality_sentence,
    kernel_bytes,
    order_sentence,
    reasons,
    signed,
    times,
)
from memplan_engine.units import format_bytes, format_seconds


def show_run(run: RunFile) -> None:
    """All of it, from the verdicts to the tables."""
    _verdicts(run)
    _figures(run)
    if run.curves:
        chart = run_curves.figure(run_curves.data(run))
        st.plotly_chart(chart, key="run_curves", config={"displayModeBar": False})
        st.caption(plain(f"Counted: {counted_sentence(run)}"))
    else:
        st.info("There are no ops to watch.")
    _tabs(run)


def _verdicts(run: RunFile) -> None:
    """Badges for what is well, errors in full for what is not."""
    with st.container(horizontal=True, gap="small", key="run_badges"):
        if run.equality and run.equality.exact:
            st.badge(plain(equality_sentence(run.equality)), icon=":material/check_circle:", color="green")
        if run.check and not run.check.fault:
            told = f"safety mode: {check_sentence(run.check)}"
            st.badge(plain(told), icon=":material/shield:", color="green")
        if run.difference == 0:
            told = "predicted peak equals the measured one, to the byte"
            st.badge(told, icon=":material/straighten:", color="green")
        if run.order:
            best = run.order.bound_bytes is not None and run.order.bound_bytes >= run.order.live_after
            icon = ":material/swap_vert:"
            st.badge(plain(order_sentence(run.order)), icon=icon, color="green" if best else "gray")
        if run.plan is None and run.curves:
            told = (
                "eager, predicted: nothing was run"
                if run.predicted
                else "an observation: nothing was predicted"
            )
            st.badge(told, icon=":material/visibility:", color="gray")
        if run.training:
            st.badge("training mode", color="gray")
        if run.functional:
            st.badge("functional graph", color="gray")
    if run.equality and not run.equality.exact:
        st.error(plain(f"Result {equality_sentence(run.equality)}"), icon=":material/difference:")
    if run.check and run.check.fault:
        st.error(plain(f"Safety mode: {run.check.fault}"), icon=":material/gpp_bad:")


def _figures(run: RunFile) -> None:
    base = peak_of(run.predicted)[0] if run.predicted else None
    figures: list[tuple[str, str, str | None]] = []
    if base is not None:
        figures.append(("Predicted peak", format_bytes(base), _at(run, run.predicted)))
    if "dispatch" in run.curves:
        told = difference_sentence(run) if run.predicted else _at(run, run.dispatch)
        figures.append(("Measured peak", format_bytes(max(run.dispatch)), told))
    if "allocator" in run.curves:
        top = max(run.allocator)
        # As the command line says it: a bare "0 B" would not say beside what.
        beside = "as predicted" if top == base else signed(top - (base or 0))
        told = _at(run, run.allocator) if base is None else beside
        figures.append(("Allocator's peak", format_bytes(top), told))
    if run.slab:
        figures.append(("Slab", format_bytes(run.slab.bytes), f"policy {run.slab.policy}"))
        share = f"{100 * run.slab.share:.1f} %"
        figures.append(("Written in place", share, "of bytes that are not returned"))
    if run.profile:
        figures += _time(run.profile)
    columns = st.container(key="figures").columns(len(figures) or 1, gap="small")
    for column, (label, value, told) in zip(columns, figures, strict=False):
        column.metric(label, value, plain(told) if told else None, **QUIET)


def _time(profile: ProfileEntry) -> list[tuple[str, str, str | None]]:
    base = profile.interpreter if profile.eager is None else profile.eager
    name = "the interpreter" if profile.eager is None else "eager"
    told = f"×{profile.slab / base:.2f} of {name}" if base else None
    return [("An iteration", format_seconds(profile.slab), told)]


def _at(run: RunFile, curve: tuple[int, ...]) -> str | None:
    place = peak_of(curve)[1]
    return f"at {run.ops[place]}" if place >= 0 else None


def _tabs(run: RunFile) -> None:
    parts: dict[str, Callable[[], None]] = {}
    if run.slab:
        slab = run.slab
        parts["In the slab"] = lambda: _ways(slab)
        parts["Left out"] = lambda: _left(slab)
    if "allocator" in run.curves or (run.temporaries and not run.dispatch):
        parts["Temporaries"] = lambda: _temporaries(run)
    if run.profile:
        profile = run.profile
        parts["Time"] = lambda: _times(profile)
    parts["Downloads"] = lambda: _downloads(run)
    show_tabs("run_tabs", parts)


def _ways(slab: SlabEntry) -> None:
    totals = max(sum(way.storages for way in slab.ways), 1), max(sum(way.bytes for way in slab.ways), 1)
    rows = pd.DataFrame(
        {
            "way": [way.way for way in slab.ways],
            "what it means": [WAYS[way.way] for way in slab.ways],
            "storages": [way.storages for way in slab.ways],
            "of storages": [way.storages / totals[0] for way in slab.ways],
            "size": [format_bytes(way.bytes) for way in slab.ways],
            "bytes": [way.bytes for way in slab.ways],
            "of bytes": [way.bytes / totals[1] for way in slab.ways],
        }
    )
    show_table(rows, {**whole("bytes", "storages"), "of bytes": SHARE, "of storages": SHARE})
    counts = f"views: {slab.views:,} · in-place ops: {slab.in_place:,}"
    st.caption(plain(f"Nodes that allocate nothing: {counts}"))


def _left(slab: SlabEntry) -> None:
    if not slab.left:
        st.info("Every op output is written in place.")
        return
    st.caption("Why ops are not written in place, by kind")
    grouped = reasons(slab.left)
    rows = pd.DataFrame(
        {
            "kind": [row.kind for row in grouped],
            "reason": [row.reason for row in grouped],
            "way": [row.way for row in grouped],
            "storages": [row.storages for row in grouped],
            "size": [format_bytes(row.nbytes) for row in grouped],
            "bytes": [row.nbytes for row in grouped],
        }
    )
    show_table(rows, whole("bytes", "storages"))
    st.caption("Op by op, largest first")
    largest = sorted(slab.left, key=lambda entry: -entry.bytes)[:MOST_ROWS]
    each = pd.DataFrame(
        {
            "op": [entry.op for entry in largest],
            "kind": [entry.kind for entry in largest],
            "storage": [entry.storage for entry in largest],
            "way": [entry.way for entry in largest],
            "reason": [entry.reason for entry in largest],
            "bytes": [entry.bytes for entry in largest],
        }
    )
    show_table(each, whole("bytes"))


def _temporaries(run: RunFile) -> None:
    if not run.temporaries:
        st.info("No op has temporaries or scratch.")
        return
    takers = sorted(run.temporaries, key=lambda taker: -kernel_bytes(taker))[:MOST_ROWS]
    rows = pd.DataFrame(
        {
            "op": [taker.op for taker in takers],
            "kind": [taker.kind for taker in takers],
            "kernel scratch": [format_bytes(kernel_bytes(taker)) for taker in takers],
            "kernel scratch, bytes": [kernel_bytes(taker) for taker in takers],
            "temporaries, bytes": [taker.inside_bytes for taker in takers],
            "total, bytes": [taker.bytes for taker in takers],
        }
    )
    show_table(rows, whole("kernel scratch, bytes", "temporaries, bytes", "total, bytes"))
    st.caption(
        "Memory that an op uses while it runs and frees before it ends. Temporaries of the operators "
        "inside it are predicted; kernel scratch is known only from a run or a calibration."
    )


def _times(profile: ProfileEntry) -> None:
    told = " · ".join(f"{name} {text}" for name, text in times(profile).items())
    setup = f"setup {format_seconds(profile.setup)}, export and planning included"
    st.caption(plain(f"{told}; medians of {profile.runs} interleaved runs. {setup}"))
    total = sum(kind.slab for kind in profile.kinds) or 1.0
    rows = pd.DataFrame(
        {
            "kind": [kind.kind for kind in profile.kinds],
            "ops": [kind.ops for kind in profile.kinds],
            "original, ms": [1000 * kind.plain for kind in profile.kinds],
            "in the slab, ms": [1000 * kind.slab for kind in profile.kinds],
            "share": [kind.slab / total for kind in profile.kinds],
        }
    )
    number = st.column_config.NumberColumn(format="%.3f")
    show_table(rows, {"original, ms": number, "in the slab, ms": number, "share": SHARE, "ops": WHOLE})


def _downloads(run: RunFile) -> None:
    st.download_button(
        "Download the run (JSON)",
        lambda: run_bytes(run),
        "run.json",
        "application/json",
        icon=":material/download:",
        on_click="ignore",
    )
    st.caption("It opens on this page again. `memplan run -o` writes the same for your own models.")
