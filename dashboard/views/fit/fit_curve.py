"""Bytes against time on the page Fit: the chart, whose points can be chosen, and the ops that run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
import streamlit as st
from memplan_dashboard.background.fit_job import FitAsked
from memplan_dashboard.charts import memory_time
from memplan_dashboard.charts.memory_time import MemoryTime
from memplan_dashboard.session import fitting, state
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.state import mebibytes_text
from memplan_dashboard.widgets.tables import MOST_ROWS, show_table, whole

from memplan_engine.advice.checkpoint_code import Checkpoints
from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.analysis.torch_budgets import TorchPoint
from memplan_engine.fitting.fitted import Fitted, Stage, StageName
from memplan_engine.graph import Op
from memplan_engine.op_kinds.copies import is_copy
from memplan_engine.reporters.fit.checkpoint_words import checkpoint_words
from memplan_engine.rewrites.offload.offloaded_graph import copied_storages
from memplan_engine.rewrites.recompute.recomputed_graph import first_run
from memplan_engine.units import count_of, exact, format_bytes, format_percent, format_seconds

STILL = {"displayModeBar": False}
BESIDE_TORCH = (
    "torch's points: the same passes cut by its min-cut partitioner at each `activation_memory_budget`, by "
    "the same times; live bytes, in the best of its own order and Inductor's rules, without what an arena "
    "adds."
)


def show_curve(
    fitted: Fitted, border: Sequence[tuple[float, float]], torch: Sequence[TorchPoint], unfinished: bool
) -> None:
    """The chart, with the `border` of what is proved of every schedule, and points of torch's; `unfinished`:
    more points may come."""
    curve = fitted.curve
    if curve is None:
        return
    st.markdown("**Memory against extra time** :gray[the arena, without weights and state]")
    values = memory_time.data(fitted, border, _knobs(torch))
    if values is None:
        none = (
            "No schedule with fewer bytes was found" if not unfinished else "No schedule with fewer bytes yet"
        )
        st.caption(plain(f"{none}, however often ops run again.{_floor(curve.least_bytes)}"))
        return
    # A point that is chosen by other means, or again, is clicked anew.
    key = f"fit_curve_{values.chosen}"

    def take_clicked() -> None:
        _take_clicked(st.session_state[key], fitted.state_bytes)

    dark = st.context.theme.type == "dark"
    st.plotly_chart(
        memory_time.figure(values, dark),
        key=key,
        config=STILL,
        on_select=take_clicked,
        selection_mode="points",
    )
    told = "Click a point: its arena with weights and state becomes the capacity."
    st.caption(plain(f"{told}{_floor(curve.least_bytes)}"))
    if values.knobs:
        st.caption(BESIDE_TORCH)
    with st.expander("The points as a table"):
        _show_points(values, fitted.state_bytes)


def _knobs(torch: Sequence[TorchPoint]) -> list[tuple[int, float, str]]:
    """A point for budgets one after another at which torch does the same, with the first and the last."""
    several = groupby(torch, lambda each: (each.live_bytes, each.extra_seconds))
    knobs = []
    for (nbytes, seconds), group in several:
        budgets = [f"{each.budget:g}" for each in group]
        knobs.append((nbytes, seconds, "–".join(dict.fromkeys((budgets[0], budgets[-1])))))
    return knobs


def _floor(least: int) -> str:
    if not least:
        return ""
    return f" No schedule has an arena of fewer than {exact(least)}, however often its ops run again: proved."


def _take_clicked(picked: Any, state_bytes: int) -> None:
    points: list[Mapping[str, Any]] = list(picked["selection"]["points"]) if picked else []
    arena = memory_time.arena_of(points[0]) if points else None
    if arena is not None:
        state.choose(fit_capacity=mebibytes_text((arena + state_bytes) / 2**20))


def _show_points(values: MemoryTime, state_bytes: int) -> None:
    """To the byte, and for those who type the capacity."""
    points = values.points
    rows = pd.DataFrame(
        {
            "arena": [point.arena for point in points],
            "with state": [point.arena + state_bytes for point in points],
            "extra time": [f"+{format_percent(point.extra)}" for point in points],
            "at least, proved": [f"+{format_percent(point.bound)}" for point in points],
        }
    )
    show_table(rows, whole("arena", "with state"), key="fit_points")


def show_again(asked: FitAsked, fitted: Fitted, stage: Stage, times: OpTimes | None) -> None:
    """The card of the `stage` in which ops run again, if any do."""
    if stage.time is None or times is None or not (ops := _again(fitted, stage)):
        return
    saved = fitted.saved_bytes(stage)
    with st.container(border=True, key="change_recompute"):
        words = f"Run {count_of(len(ops), 'op')} again"
        if stage.name is StageName.RECOMPUTE:
            words = f"{words}, +{format_percent(stage.time.extra)} time"
            st.markdown(f":green[**−{format_bytes(saved)}**] {plain(words)}")
        else:
            st.markdown(plain(f"{words}, beside the copies"))
        st.caption(
            "The plan is a download here; `memplan run MODEL --plan plan.json` runs the model so, and "
            "compares results and bytes with eager."
        )
        with st.expander(f"Ops that run again: {len(ops):,}"):
            _show_ops(stage, ops, times)
        if wrapped := fitting.checkpoints_of(asked, fitted, times):
            with st.expander("As checkpoints of modules"):
                _show_checkpoints(wrapped, fitted)


def show_copies(fitted: Fitted, stage: Stage) -> None:
    """The card of the `stage` in which results wait on the host, if any do."""
    away = copied_storages(stage.graph)
    if not away or stage.time is None:
        return
    saved = fitted.saved_bytes(stage)
    with st.container(border=True, key="change_offload"):
        words = (
            f"Copy {format_bytes(stage.copied_bytes)} to the host and back, "
            f"+{format_percent(stage.time.extra)} time"
        )
        tone = f":green[**−{format_bytes(saved)}**] " if saved > 0 else ""
        st.markdown(f"{tone}{plain(words)}")
        st.caption(plain(f"Times are {stage.time.of}."))
        with st.expander(f"Results that wait on the host: {len(away):,}"):
            shown = sorted(away, key=lambda each: -each.nbytes)[:MOST_ROWS]
            rows = pd.DataFrame(
                {
                    "result": [each.storage for each in shown],
                    "bytes": [each.nbytes for each in shown],
                    "to the host at": [each.sent for each in shown],
                    "gone from": [each.left for each in shown],
                    "back at": [each.back for each in shown],
                }
            )
            show_table(rows, whole("bytes", "to the host at", "gone from", "back at"), key="fit_copied")


def _show_checkpoints(wrapped: Checkpoints, fitted: Fitted) -> None:
    """The coarser form that people can write."""
    st.caption(plain(checkpoint_words(wrapped, fitted)[0]))
    st.code(wrapped.code, language="python", wrap_lines=True)
    st.caption(
        "Not captured again here: `memplan fit FILE.py:FACTORY --checkpoints wrap.py` does that, and writes "
        "only what holds."
    )


def _again(fitted: Fitted, stage: Stage) -> list[tuple[Op, Op]]:
    """Each second run with the op that it is one of."""
    own = {op.name: op for op in fitted.stages[0].graph.ops}
    more = [op for op in stage.graph.ops if op.name not in own and not is_copy(op.kind)]
    return [(op, own[first_run(op.name, own)]) for op in more]


def _show_ops(stage: Stage, ops: list[tuple[Op, Op]], times: OpTimes) -> None:
    nbytes = {tensor.name: tensor.nbytes for tensor in stage.graph.tensors}
    steps = {op.name: step for step, op in enumerate(stage.graph.ops)}
    shown = sorted(ops, key=lambda pair: -times.seconds[pair[1].name])[:MOST_ROWS]
    rows = pd.DataFrame(
        {
            "op": [first.name for _, first in shown],
            "kind": [first.kind for _, first in shown],
            "time": [format_seconds(times.seconds[first.name]) for _, first in shown],
            "bytes": [sum(nbytes[name] for name in op.outputs) for op, _ in shown],
            "first at": [steps[first.name] for _, first in shown],
            "again at": [steps[op.name] for op, _ in shown],
            "source": [str(first.source or "") for _, first in shown],
        }
    )
    show_table(rows, whole("bytes", "first at", "again at"), key="fit_again_ops")
