"""What there is to take away of a plan, named after its file: report, figures, offsets, the peak."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from memplan_dashboard.plan_view.component import Marks
from memplan_dashboard.session.messages import file_name
from memplan_dashboard.session.plan_facts import PlanFacts

from memplan_engine import FigureStyle, ReportNotes
from memplan_engine.analysis.peak_tree import Node, difference_tree, peak_tree
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.formats.memplan_json.json_file import dumps
from memplan_engine.plotting.png_figure import to_png
from memplan_engine.plotting.svg_figure import to_svg
from memplan_engine.reporters.html.report_html import to_html
from memplan_engine.reporters.peak_report import tree_csv


def show_downloads(facts: PlanFacts, colour: str, marks: Marks) -> None:
    """A button for each file; figures in the colouring that is shown, the tree of the step that is marked, or
    the difference of two."""
    plan, style = facts.plan, FigureStyle(colour_by=colour)
    there, second = facts.at(marks[0]), marks[1]
    step = "peak" if there.step == facts.peak.step else f"step {there.step}"
    tree: Callable[[], Node] = lambda: peak_tree(there, plan.problem)  # noqa: E731
    if second is not None:
        step = f"step {second} minus step {there.step}"
        tree = lambda: difference_tree(plan.problem, second, there.step)  # noqa: E731
    notes = ReportNotes(file=facts.document.label)
    name = f"{file_name(plan.problem.name)}_{plan.strategy}"
    given: tuple[tuple[str, str, str, str, Callable[[], bytes]], ...] = (
        (
            "Offsets, CSV",
            f"{name}.csv",
            "text/csv",
            "Every buffer with its lifetime, size and offset, in the format of MiniMalloc's solutions.",
            lambda: to_csv(plan),
        ),
        (
            "Plan, JSON",
            f"{name}.json",
            "application/json",
            "The plan with its bound and its graph; `memplan validate` checks it.",
            lambda: dumps(plan),
        ),
        (
            f"{step.capitalize()}, CSV",
            f"{name}_{file_name(step)}.csv",
            "text/csv",
            "What is live at the peak or at the step that is marked, or the difference of two, by module.",
            lambda: tree_csv(tree()).encode(),
        ),
        (
            "Report, HTML",
            f"{name}.html",
            "text/html",
            "One page that opens offline: chart and tables. `memplan report` compares strategies, too.",
            lambda: to_html(plan, notes=notes).encode(),
        ),
        ("SVG", f"{name}.svg", "image/svg+xml", "The chart.", lambda: to_svg(plan, style).encode()),
        ("PNG", f"{name}.png", "image/png", "The chart.", lambda: to_png(plan, style)),
    )
    for label, file, kind, told, make in given:
        st.download_button(
            label,
            make,
            file,
            kind,
            icon=":material/download:",
            type="tertiary",
            on_click="ignore",
            help=told,
        )
