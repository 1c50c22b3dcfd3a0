"""A plan in a notebook: its picture and its figures as HTML, its table as text."""

from __future__ import annotations

from memplan_engine.analysis.claims import counted
from memplan_engine.analysis.plan_figures import figures_of
from memplan_engine.plan import Plan
from memplan_engine.plotting.figure_style import FigureStyle
from memplan_engine.plotting.svg_figure import escape, to_svg
from memplan_engine.reporters.figure_list import figure_rows
from memplan_engine.reporters.plan_tables import certificate, effort

STYLE = FigureStyle(width=900, height=480)
MOST_RECTS = 5_000
"""Notebooks keep what they show: a plan with more buffers is a picture."""
TEXT_WIDTH = 120


def notebook_html(plan: Plan) -> str:
    """The plan drawn (SVG inside of HTML), and its figures below; names are escaped."""
    rows = [
        *figure_rows(figures_of(plan), "notebook"),
        ("planned in", effort(plan)),
        ("counted", counted(plan.problem)),
    ]
    left = 'style="text-align: left"'
    cells = "".join(
        f"<tr><th {left}>{label}</th><td {left}>{escape(value)}</td></tr>" for label, value in rows
    )
    proof = f"<p>{escape(certificate(plan))}</p>" if len(plan.problem) else ""
    return f"<div>{to_svg(plan, STYLE, MOST_RECTS)}<table>{cells}</table>{proof}</div>"


def notebook_bundle(plan: Plan) -> dict[str, str]:
    """HTML and text by media type."""
    from rich.console import Console

    console = Console(width=TEXT_WIDTH, emoji=False, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(plan)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return {"text/html": notebook_html(plan), "text/plain": text}
