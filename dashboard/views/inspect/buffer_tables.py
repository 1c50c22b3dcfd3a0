"""The tables under the chart: the peak, and all buffers. A row selected is a buffer selected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import streamlit as st
from memplan_dashboard.plan_view.component import Marks
from memplan_dashboard.session.documents import is_recorded, is_simulated
from memplan_dashboard.session.messages import plain
from memplan_dashboard.session.plan_facts import PlanFacts
from memplan_dashboard.views.inspect.allocator_tab import ALLOCATOR, show_allocator
from memplan_dashboard.views.inspect.graph_tabs import show_reuse, show_sizes, show_values
from memplan_dashboard.views.inspect.memory_tabs import show_layout, show_objects, show_reserved
from memplan_dashboard.views.inspect.recording_story import Story, show_call_stacks
from memplan_dashboard.views.inspect.training_tab import show_training
from memplan_dashboard.widgets import controls
from memplan_dashboard.widgets.planning_options import symbols_of
from memplan_dashboard.widgets.tables import MOST_ROWS, SHARE, selectable, whole
from numpy.typing import NDArray

from memplan_engine import Graph, Plan, find_provenance
from memplan_engine.analysis.buffer_names import buffer_names
from memplan_engine.analysis.peak import Contributor
from memplan_engine.analysis.peak_tree import difference
from memplan_engine.analysis.provenance import OP_PROPERTIES
from memplan_engine.analysis.training_phases import is_training
from memplan_engine.reporters.figure_list import shown_columns
from memplan_engine.units import format_bytes, format_signed

LIVE_FIRST = ["buffer", "size", "bytes", "share", "source"]


def show_tables(
    facts: PlanFacts,
    marks: Marks,
    selected: int | None,
    what_if: Callable[[], None] | None = None,
    missed: NDArray[np.bool_] | None = None,
    story: Story | None = None,
) -> None:
    """A tab for each of: the calls of a recording's `story`, what is live at the step that is looked at, all
    buffers, and what the graph behind them offers; `what_if` fills one more. Of all buffers those are left
    out that a search has `missed`."""
    parts: dict[str, Callable[[], None]] = {}
    if story is not None:
        parts["Call stacks"] = lambda: show_call_stacks(story)
    parts |= {
        "Live buffers": lambda: _show_live(facts, marks, selected),
        "All buffers": lambda: _show_all(facts, selected, missed),
        "Layout": lambda: show_layout(facts),
    }
    if what_if is not None:
        parts["What if"] = what_if
    graph = facts.document.graph
    if is_recorded(facts.document):
        parts["Reserved"] = lambda: show_reserved(facts.document)
    if is_simulated(facts.document):
        parts[ALLOCATOR] = lambda: show_allocator(facts.document, marks[0] if story else None)
    if facts.plan.objects is not None:
        parts["Shared objects"] = lambda: show_objects(facts.plan)
    if graph is not None:
        parts["Values"] = lambda: show_values(graph)
    if isinstance(facts.document.loaded, Graph):
        parts["Reuse"] = lambda: show_reuse(facts)
    if symbols_of(facts.document):
        parts["Sizes"] = lambda: show_sizes(facts)
    if graph is not None and is_training(graph):
        parts["Training"] = lambda: show_training(facts, graph)
    controls.show_tabs("tables", parts)


def _show_live(facts: PlanFacts, marks: Marks, selected: int | None) -> None:
    """What is live at the peak or at the step that is marked; of two steps, what changes between them."""
    step, second = marks
    there = facts.at(step)
    if second is not None:
        st.caption(f"What is live at step {second:,} but not at step {there.step:,}; negative means less.")
        parts = difference(facts.plan.problem, second, there.step)[:MOST_ROWS]
        rows = _live_rows(parts)
    else:
        of_peak = " (peak)" if there.step == facts.peak.step else ""
        at = f", {there.op_label}" if there.op_label else ""
        live = f"{format_bytes(there.nbytes)} live at step {there.step:,}{of_peak}{at}"
        st.caption(plain(f"{live}. Counted: {there.counted}."))
        parts = there.contributors[:MOST_ROWS]
        rows = _live_rows(parts, there.nbytes)
    _selectable(rows, [part.buffer for part in parts], selected, "live", facts)


def _show_all(facts: PlanFacts, selected: int | None, missed: NDArray[np.bool_] | None) -> None:
    shown = np.arange(len(facts.plan.problem)) if missed is None else np.flatnonzero(~missed)
    buffers = _largest(facts.plan.problem.size, shown)
    if selected is not None and selected not in buffers:
        buffers = [*buffers[: MOST_ROWS - 1], selected]
    if len(shown) > MOST_ROWS:
        st.caption(
            f"The largest {MOST_ROWS:,} of {len(shown):,} buffers{' found' if missed is not None else ''}. "
            "The selected buffer is always among them."
        )
    _selectable(_rows_of(facts.plan, buffers), buffers, selected, "all", facts)


def _largest(size: NDArray[np.int64], among: NDArray[np.int64]) -> list[int]:
    """The largest of some buffers, up to as many as a table has rows, largest first, ties by index."""
    if len(among) > MOST_ROWS:
        least = np.partition(size[among], len(among) - MOST_ROWS)[len(among) - MOST_ROWS]
        among = among[size[among] >= least]
    largest: list[int] = among[np.argsort(-size[among], kind="stable")][:MOST_ROWS].tolist()
    return largest


def _selectable(
    rows: pd.DataFrame, buffers: Sequence[int | None], selected: int | None, name: str, facts: PlanFacts
) -> None:
    """A table whose selected row is the selected buffer, whichever of them is clicked."""
    columns = {**whole("bytes", "offset", "start", "end"), "share": SHARE}
    choose = controls.select(facts.plan.problem)
    selectable(rows, buffers, selected, name, facts.document.key, choose, columns)


def _live_rows(parts: Sequence[Contributor], total: int | None = None) -> pd.DataFrame:
    """A row each, with its share of the `total`; without one, sizes are changes."""
    rows = pd.DataFrame(
        {column.heading: [column.says(part, total or 1) for part in parts] for column in shown_columns()}
    )
    rows["bytes"] = [part.nbytes for part in parts]
    first = LIVE_FIRST
    if total is None:
        rows["size"] = [format_signed(part.nbytes) for part in parts]
        rows, first = rows.drop(columns="share"), [name for name in LIVE_FIRST if name != "share"]
    else:
        rows["share"] = [part.nbytes / total for part in parts]
    # In half a page's width the line of code is worth more than its module.
    return _without_empty(rows[[*first, *rows.columns.difference(first, sort=False)]])


def _rows_of(plan: Plan, buffers: Sequence[int]) -> pd.DataFrame:
    problem, origins = plan.problem, find_provenance(plan.problem)
    labels = buffer_names(problem)
    rows = pd.DataFrame(
        {
            "buffer": [labels[buffer] for buffer in buffers],
            **(
                {"in graph": [problem.names[buffer] for buffer in buffers]}
                if labels is not problem.names
                else {}
            ),
            "size": [format_bytes(int(problem.size[buffer])) for buffer in buffers],
            "bytes": problem.size[buffers],
            "offset": plan.offsets[buffers],
            "start": problem.start[buffers],
            "end": problem.end[buffers],
            "kind": [origins[buffer].kind for buffer in buffers],
            **{
                each.label: [each.words(each.of(origins[buffer].maker)) for buffer in buffers]
                for each in OP_PROPERTIES
            },
        }
    )
    return _without_empty(rows)


def _without_empty(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out what the file does not say of any buffer."""
    names = [column.heading for column in shown_columns() if column.group]
    says_nothing = [name for name in names if name in rows and rows[name].isin(["", "buffer"]).all()]
    return rows.drop(columns=says_nothing)
