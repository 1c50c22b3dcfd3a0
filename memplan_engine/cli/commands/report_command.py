"""`memplan report`: one page to hand on, and figures for papers."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    DEFAULT_SECONDS,
    FILE,
    KEPT_STRATEGY,
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
from memplan_engine.formats.memplan_json.json_file import load_banked
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


COLOUR_BY = Annotated[
    str | None,
    typer.Option(
        help="Colour the figure by op kind, size, lifetime, role, module or phase.",
        show_default=False,
    ),
]


@app.command()
@with_preparation
def report(
    file: FILE,
    how: Preparation,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Self-contained HTML page.")] = None,
    png: Annotated[Path | None, typer.Option(help="PNG figure; needs Pillow.")] = None,
    svg: Annotated[Path | None, typer.Option(help="SVG figure.")] = None,
    strategy: KEPT_STRATEGY = None,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    compare: Annotated[
        str, typer.Option(help="Strategies to compare on the page: comma-separated names, all or none.")
    ] = "all",
    width: Annotated[
        str, typer.Option(help="Width of the figure: pixels (1/96 inch), or such as 85mm, 3.5in.")
    ] = "960",
    height: Annotated[str, typer.Option(help="Height of the figure, in the same units.")] = "600",
    dpi: Annotated[int, typer.Option(help="Resolution of the PNG.")] = 192,
    theme: Annotated[
        Literal["light", "dark"], typer.Option(help="Theme of the figure; the page follows the browser.")
    ] = "light",
    colour_by: COLOUR_BY = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the figure (default: the graph's name).", show_default=False)
    ] = None,
    date: Annotated[bool, typer.Option("--date", help="Put today's date (UTC) on the page.")] = False,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings/--no-timings", help="Include the planning time, which differs from run to run."
        ),
    ] = True,
) -> None:
    """Write a plan as a self-contained HTML page or as a figure (SVG, PNG)."""
    sizes = parse_length(width, "--width"), parse_length(height, "--height")
    style = FigureStyle(*sizes, dpi, theme, colour_by, title)
    _check_targets(output, png, svg, file)
    if svg and not (output or png) and _wrote_lanes(file, how, svg, style):
        return
    names = _strategy_names(compare if output else "none")
    chosen = strategy or "auto"
    loaded, prepared = open_file(file, how)
    problem = prepare(loaded, prepared, file.name)
    others: list[Plan] = []
    if isinstance(loaded, Plan) and strategy is None:
        plan, cut_by = loaded, ""
    else:
        plan, cut_by = _in_sight(problem, chosen, make_limits(chosen, seconds, seed, threads))
    if not (plan.cut_short and cut_by == CTRL_C):
        others = _compared(problem, plan, names, seconds, seed, threads)
    today = datetime.now(UTC).strftime("%Y-%m-%d") if date else ""
    notes = ReportNotes(file.name, _command(), today, timings)
    if output:
        write_report(plan, output, others, notes)
    if png:
        write_png(plan, png, style)
    if svg:
        write_svg(plan, svg, style)
    for path in filter(None, (output, png, svg)):
        put(f"{path}: {format_bytes(path.stat().st_size)}\n")


def _check_targets(page: Path | None, png: Path | None, svg: Path | None, source: Path) -> None:
    """Raise, before long work, when one of the files to write could not be written, or when there is none."""
    if not (page or png or svg):
        raise InputError("report", "", "nothing to write", "-o report.html, --svg or --png")
    for path, suffixes in ((page, (".html", ".htm")), (png, (".png",)), (svg, (".svg",))):
        if path:
            check_target(path, suffixes, source)
    if png:
        need_pillow()


def _strategy_names(text: str) -> tuple[str, ...] | None:
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
    names: tuple[str, ...] | None,
    seconds: float | None,
    seed: int,
    threads: int,
) -> list[Plan]:
    """A plan by each strategy but that of `plan`; Ctrl-C ends the one that runs and leaves out the rest."""
    plans: list[Plan] = []
    for name in dict.fromkeys(strategies_for(problem) if names is None else names):
        if name == plan.strategy:
            continue
        limit = min(COMPARED_SECONDS, seconds or DEFAULT_SECONDS) if is_anytime(get_strategy(name)) else None
        other, cut_by = _in_sight(problem, name, make_limits(name, limit, seed, threads))
        plans.append(other)
        if other.cut_short and cut_by == CTRL_C:
            break
    return plans


def _wrote_lanes(file: Path, how: Preparation, svg: Path, style: FigureStyle) -> bool:
    """Write a plan over several banks as lanes; whether `file` holds one of which no bank was chosen."""
    banked = load_banked(file) if how.in_bank is None else None
    if banked is not None:
        from memplan_engine.plotting.bank_lanes import write_lanes

        write_lanes(banked, svg, style)
    return banked is not None


def _command() -> str:
    """The command line as it was typed, if `memplan` was what ran."""
    arguments = sys.argv[1:]
    return shlex.join(["memplan", *arguments]) if arguments[:1] == ["report"] else ""
