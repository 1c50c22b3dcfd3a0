"""`memplan report`: one page to hand on, and figures for papers."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    DEFAULT_SECONDS,
    FILE,
    SECONDS,
    SEED,
    THREADS,
    make_limits,
    open_file,
    with_preparation,
)
from memplan_engine.cli.output import put
from memplan_engine.cli.progress import CTRL_C, solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan, strategies_for
from memplan_engine.plotting.figure_style import FigureStyle, parse_length
from memplan_engine.plotting.png_figure import need_pillow, write_png
from memplan_engine.plotting.svg_figure import write_svg
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.problem import Problem
from memplan_engine.reporters.html.report_html import ReportNotes, write_report
from memplan_engine.strategies import get_strategy
from memplan_engine.strategies.base import SolveLimits, is_anytime
from memplan_engine.units import format_bytes

COMPARED_SECONDS = 2.0
"""The limit of each search in the table of strategies, unless a shorter one is asked for."""


PAGE = Annotated[Path | None, typer.Option("-o", "--output", help="One .html file that needs nothing else.")]
PNG = Annotated[Path | None, typer.Option(help="The figure as pixels; needs Pillow.")]
SVG = Annotated[Path | None, typer.Option(help="The figure as vectors.")]
PLANNED_BY = Annotated[
    str | None,
    typer.Option(
        help="See `memplan strategies`; auto unless given. A finished plan stays as it is without it.",
        show_default=False,
    ),
]
COMPARED = Annotated[str, typer.Option(help="Strategies in the page's table: comma-separated, all or none.")]
WIDTH = Annotated[str, typer.Option(help="Of the figure: pixels (1/96 inch), or as 85mm, 3.5in.")]
HEIGHT = Annotated[str, typer.Option(help="As the width.")]
DPI = Annotated[int, typer.Option(help="Device pixels per inch of the PNG.")]
THEME = Annotated[Literal["light", "dark"], typer.Option(help="Of the figure; the page follows the browser.")]
COLOUR_BY = Annotated[
    str | None,
    typer.Option(
        help="Of the figure: op kind, size, lifetime, role, module or phase; kind or size unless given.",
        show_default=False,
    ),
]
TITLE = Annotated[
    str | None, typer.Option(help="Of the figure; the graph's name unless given.", show_default=False)
]
DATE = Annotated[bool, typer.Option("--date", help="Put today's date (UTC) on the page.")]
TIMINGS = Annotated[
    bool, typer.Option("--timings/--no-timings", help="Say how long planning took, which always differs.")
]


@dataclass(frozen=True, slots=True)
class Targets:
    """The files to write, None for those that nobody asked for."""

    page: Path | None
    png: Path | None
    svg: Path | None

    def check(self, source: Path) -> None:
        """Raise, before long work, when one of them could not be written, or when there is none."""
        if not (self.page or self.png or self.svg):
            raise InputError("report", "", "nothing to write", "-o report.html, --svg or --png")
        for path, suffixes in ((self.page, (".html", ".htm")), (self.png, (".png",)), (self.svg, (".svg",))):
            if path:
                check_target(path, suffixes, source if source.exists() else None)
        if self.png:
            need_pillow()

    def write(self, plan: Plan, others: list[Plan], style: FigureStyle, notes: ReportNotes) -> list[Path]:
        """Write them; the paths of what was written."""
        if self.page:
            write_report(plan, self.page, others, notes)
        if self.png:
            write_png(plan, self.png, style)
        if self.svg:
            write_svg(plan, self.svg, style)
        return [path for path in (self.page, self.png, self.svg) if path]


@app.command()
@with_preparation
def report(
    file: FILE,
    how: Preparation,
    output: PAGE = None,
    png: PNG = None,
    svg: SVG = None,
    strategy: PLANNED_BY = None,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    compare: COMPARED = "all",
    width: WIDTH = "960",
    height: HEIGHT = "600",
    dpi: DPI = 192,
    theme: THEME = "light",
    colour_by: COLOUR_BY = None,
    title: TITLE = None,
    date: DATE = False,
    timings: TIMINGS = True,
) -> None:
    """Write a plan as a page that opens anywhere, offline, or as a figure for a paper."""
    sizes = parse_length(width, "--width"), parse_length(height, "--height")
    style = FigureStyle(*sizes, dpi, theme, colour_by, title)
    targets = Targets(output, png, svg)
    targets.check(file)
    wanted = _wanted(compare if output else "none")
    chosen = strategy or "auto"
    loaded, prepared = open_file(file, how)
    problem = prepare(loaded, prepared, file.name)
    others: list[Plan] = []
    if isinstance(loaded, Plan) and strategy is None:
        plan, cut_by = loaded, ""
    else:
        plan, cut_by = _in_sight(problem, chosen, make_limits(chosen, seconds, seed, threads))
    if not (plan.cut_short and cut_by == CTRL_C):
        others = _compared(problem, plan, wanted, seconds, seed, threads)
    today = datetime.now(UTC).strftime("%Y-%m-%d") if date else ""
    notes = ReportNotes(file.name, _command(), today, timings)
    for path in targets.write(plan, others, style, notes):
        put(f"{path}: {format_bytes(path.stat().st_size)}\n")


def _wanted(text: str) -> tuple[str, ...] | None:
    """The strategies to compare, None for all; raises MemplanError for one that there is not."""
    if text in ("all", "none"):
        return None if text == "all" else ()
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        get_strategy(name)
    return names


def _in_sight(problem: Problem, strategy: str, limits: SolveLimits) -> tuple[Plan, str]:
    return solve_in_sight(lambda: make_plan(problem, strategy, limits=limits), limits)


def _compared(
    problem: Problem,
    plan: Plan,
    wanted: tuple[str, ...] | None,
    seconds: float | None,
    seed: int,
    threads: int,
) -> list[Plan]:
    """A plan by each strategy but that of `plan`; Ctrl-C ends the one that runs and leaves out the rest."""
    plans: list[Plan] = []
    for name in dict.fromkeys(strategies_for(problem) if wanted is None else wanted):
        if name == plan.strategy:
            continue
        limit = min(COMPARED_SECONDS, seconds or DEFAULT_SECONDS) if is_anytime(get_strategy(name)) else None
        other, cut_by = _in_sight(problem, name, make_limits(name, limit, seed, threads))
        plans.append(other)
        if other.cut_short and cut_by == CTRL_C:
            break
    return plans


def _command() -> str:
    """The command line as it was typed, if `memplan` was what ran."""
    arguments = sys.argv[1:]
    return shlex.join(["memplan", *arguments]) if arguments[:1] == ["report"] else ""
