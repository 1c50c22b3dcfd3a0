"""A simulated allocator step by step: its curves, its segments at the step that is picked, and the whole
stack of a block on a click."""

from __future__ import annotations

from typing import Any

import streamlit as st
from memplan_dashboard.charts import reserved_over_time, segment_bars
from memplan_dashboard.session import state
from memplan_dashboard.session.messages import plain, show_note
from memplan_dashboard.widgets.controls import chooses

from memplan_engine.allocator.segments import segments_at
from memplan_engine.allocator.simulation import AllocatorRun
from memplan_engine.units import count_of, exact, format_bytes

CURVES, BARS = "allocator_over_time", "segment_bars"


def show_segments(run: AllocatorRun, marked: int | None = None) -> None:
    """The curves, and below them what is held at a step: a click on the curves or the slider picks it. Until
    then it is the one that is `marked`, else that with the most reserved."""
    highest, steps = int(run.reserved.argmax()), len(run.reserved)
    first = highest if marked is None or marked >= steps else marked
    step, wrong = _asked(first, steps)
    curves = reserved_over_time.figure(reserved_over_time.simulated(run), step)
    st.plotly_chart(
        curves, key=CURVES, config={"displayModeBar": False}, on_select=_take_step, selection_mode="points"
    )
    show_note(wrong)
    if len(run.reserved) > 1:
        st.slider(
            "Step",
            0,
            len(run.reserved) - 1,
            help="Allocator events. Clicking the curves picks one, too.",
            **chooses("event", step, text=lambda picked: "" if picked == first else str(picked)),
        )
    bars = segment_bars.data(segments_at(run, step), run.recording.stacks)
    shown = f", the largest {len(bars.segments):,} drawn" if bars.count > len(bars.segments) else ""
    where = ", where most is reserved" * (step == highest)
    st.caption(
        plain(
            f"{count_of(bars.count, 'segment')} at step {step:,}{where}{shown}: "
            f"{format_bytes(int(run.active[step]))} in use, "
            f"{format_bytes(int(run.fragmentation[step]))} cached. Click a block for its call stack."
        )
    )
    picked = st.plotly_chart(
        segment_bars.figure(bars),
        # What was clicked is of this step.
        key=f"{BARS}_{step}",
        config={"displayModeBar": False},
        on_select="rerun",
        selection_mode="points",
    )
    _show_stack(run, picked)


def _asked(first: int, steps: int) -> tuple[int, str]:
    """The step that the address asks for, the `first` one unless it does; and what is wrong."""
    asked = state.get("event")
    if not asked:
        return first, ""
    if asked.isascii() and asked.isdigit() and len(asked) < 12 and int(asked) < steps:
        return int(asked), ""
    return first, f"event: found {asked[:40]!r}, expected a step, 0 to {steps - 1:,}"


def _take_step() -> None:
    points = _points(st.session_state[CURVES])
    if points:
        state.choose(event=str(int(points[0]["x"])))


def _show_stack(run: AllocatorRun, picked: Any) -> None:
    """Who asked for the block that was clicked."""
    for point in _points(picked):
        block = segment_bars.block_of(point)
        if block is None:
            continue
        st.caption(plain(f"Block of {exact(block.nbytes)}, innermost call first"))
        frames = run.recording.stacks.frames_of(block.stack) if block.stack >= 0 else ()
        st.code("\n".join(map(str, frames)) or "no stack was recorded", language=None)


def _points(picked: Any) -> list[Any]:
    return list(picked["selection"]["points"]) if picked else []
