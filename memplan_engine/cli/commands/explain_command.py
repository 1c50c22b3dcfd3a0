"""The verbs that look at problems and plans: what the peak is made of, where all the memory is, whether a
finished plan holds, and which strategies there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.analysis.layout import make_layout
from memplan_engine.analysis.peak import find_peak
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON, FILE, STRATEGY, open_problem, with_preparation
from memplan_engine.cli.output import show
from memplan_engine.errors import InputError
from memplan_engine.files import ImportOptions, load
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.reporters import plan_tables
from memplan_engine.strategies import known_strategies
from memplan_engine.verify.validate import validate_plan


@app.command()
@with_preparation
def peak(
    file: FILE,
    how: Preparation,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every buffer.")] = False,
) -> None:
    """Show what the peak is made of."""
    problem = open_problem(file, how)
    contents = find_peak(problem)
    show(
        as_json,
        lambda: plan_tables.peak_summary(contents),
        lambda: [
            plan_tables.peak_table(contents, problem.name, all_rows),
            *plan_tables.counted_lines(problem),
        ],
    )


@app.command()
@with_preparation
def layout(
    file: FILE,
    how: Preparation,
    strategy: STRATEGY = "auto",
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every entry.")] = False,
) -> None:
    """Show the whole memory: constants, activations, workspaces."""
    regions = make_layout(make_plan(open_problem(file, how), strategy))
    show(
        as_json,
        lambda: plan_tables.layout_summary(regions),
        lambda: [plan_tables.layout_table(regions, all_rows)],
    )


@app.command(name="validate")
def validate_(
    file: Annotated[
        Path, typer.Argument(help="memplan JSON, CSV with offsets, a snapshot", show_default=False)
    ],
    as_json: AS_JSON = False,
) -> None:
    """Check a finished plan against every rule."""
    loaded = load(file, ImportOptions(offsets_as_plan=True))
    if not isinstance(loaded, Plan):
        kind = "a graph" if isinstance(loaded, Graph) else "buffers without offsets"
        raise InputError(str(file), "", kind, "a finished plan")
    report = validate_plan(loaded)
    show(
        as_json,
        lambda: plan_tables.report_summary(loaded, report),
        lambda: plan_tables.report_lines(loaded, report),
    )
    if not report.valid:
        raise typer.Exit(1)


@app.command(name="strategies")
def strategies_(as_json: AS_JSON = False) -> None:
    """List the strategies with their sources."""
    strategies = known_strategies()
    show(
        as_json,
        lambda: [
            {"name": strategy.name, "description": strategy.description, "source": strategy.source}
            for strategy in strategies.values()
        ],
        lambda: [plan_tables.strategies_table(strategies)],
    )
