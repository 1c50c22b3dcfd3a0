"""The verbs that look at problems and plans: what the peak is made of, where all the memory is, whether a
finished plan holds, and which strategies there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.analysis.layout import make_layout
from memplan_engine.analysis.peak import contents_of, find_peak
from memplan_engine.analysis.peak_tree import difference_tree, peak_tree
from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    ALL_ROWS,
    AS_JSON,
    FILE,
    KEPT_STRATEGY,
    open_plan,
    open_problem,
    with_preparation,
)
from memplan_engine.cli.output import show
from memplan_engine.errors import InputError
from memplan_engine.files import ImportOptions, load
from memplan_engine.formats.memplan_json.json_file import load_banked
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.reporters import buffer_tables, peak_report, plan_tables
from memplan_engine.reporters.buffer_tables import Sort
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.strategies import known_strategies
from memplan_engine.units import format_bytes
from memplan_engine.verify.validate import validate_plan

Grouped = Literal["module", "line", "op", "category"]


@app.command()
@with_preparation
def peak(
    file: FILE,
    how: Preparation,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
    step: Annotated[
        int | None, typer.Option(min=0, help="Show this step instead of the peak.", show_default=False)
    ] = None,
    by: Annotated[
        Grouped | None, typer.Option(help="Show a tree of groups instead of a list.", show_default=False)
    ] = None,
    minus: Annotated[
        int | None,
        typer.Option(min=0, help="Show the difference from this step, as a tree.", show_default=False),
    ] = None,
) -> None:
    """Show what the peak, or another step, is made of."""
    problem = open_problem(file, how)
    for name, value in (("--step", step), ("--minus", minus)):
        if value is not None and value >= problem.steps:
            raise InputError(str(file), name, f"step {value}", f"0 to {problem.steps - 1}")
    contents = find_peak(problem) if step is None else contents_of(problem, step)
    if by is None and minus is None:
        show(
            as_json,
            lambda: plan_tables.peak_summary(contents, problem),
            lambda: [
                plain_text(peak_report.headline(contents, problem, step is None)),
                *plan_tables.device_lines(problem),
                plan_tables.peak_table(contents, problem.name, all_rows),
                *plan_tables.counted_lines(problem),
            ],
        )
        return
    grouped = by or "module"
    title, signed = f"{problem.name}, step {contents.step:,}", minus is not None
    if minus is None:
        tree = peak_tree(contents, problem, grouped)
    else:
        tree = difference_tree(problem, contents.step, minus, grouped)
        title += f" minus step {minus}"
    title += f": {format_bytes(tree.nbytes)}"
    show(
        as_json,
        lambda: {"step": contents.step, "minus": minus, "by": grouped, **peak_report.tree_facts(tree)},
        lambda: [
            peak_report.tree_table(tree, title, all_rows, signed),
            *plan_tables.counted_lines(problem),
        ],
    )


@app.command()
@with_preparation
def layout(
    file: FILE,
    how: Preparation,
    strategy: KEPT_STRATEGY = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Show the memory layout: weights, activations, workspaces."""
    plan = _planned(file, how, strategy)
    regions = make_layout(plan)
    show(
        as_json,
        lambda: plan_tables.layout_summary(regions, plan.problem),
        lambda: [plan_tables.layout_table(regions, plan.problem, all_rows)],
    )


@app.command()
@with_preparation
def buffers(
    file: FILE,
    how: Preparation,
    strategy: KEPT_STRATEGY = None,
    sort: Annotated[Sort, typer.Option(help="Largest first, or by start or offset.")] = "size",
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """List every buffer with its size, offset, lifetime, op and source.

    With a shared-objects strategy, also the objects and the buffers that take turns in each.
    """
    plan = _planned(file, how, strategy)
    show(
        as_json,
        lambda: buffer_tables.buffers_summary(plan, sort),
        lambda: [
            *buffer_tables.buffers_tables(plan, sort, all_rows),
            *plan_tables.counted_lines(plan.problem),
        ],
    )


def _planned(file: Path, how: Preparation, strategy: str | None) -> Plan:
    opened = open_plan(file, how, strategy)
    return opened if isinstance(opened, Plan) else make_plan(opened, strategy or "auto")


@app.command(name="validate")
def validate_(
    file: Annotated[
        Path, typer.Argument(help="memplan JSON, CSV with offsets, a snapshot", show_default=False)
    ],
    as_json: AS_JSON = False,
) -> None:
    """Check a finished plan with an independent validator."""
    banked = load_banked(file)
    if banked is not None:
        _validate_banked(banked, as_json)
        return
    loaded = load(file, ImportOptions(offsets_as_plan=True))
    if not isinstance(loaded, Plan):
        kind = "a graph" if isinstance(loaded, Graph) else "buffers without offsets"
        raise InputError(str(file), "", kind, "a finished plan, as `memplan plan FILE -o` writes it")
    report = validate_plan(loaded)
    show(
        as_json,
        lambda: plan_tables.report_summary(loaded, report),
        lambda: plan_tables.report_lines(loaded, report),
    )
    if not report.valid:
        raise typer.Exit(1)


def _validate_banked(banked: BankedPlan, as_json: bool) -> None:
    # Here, not above: a plan of one arena does not wait for what this needs.
    from memplan_engine.reporters.banks.bank_tables import report_lines, report_summary
    from memplan_engine.verify.bank_checks import validate_banked

    report = validate_banked(banked)
    show(as_json, lambda: report_summary(banked, report), lambda: report_lines(banked, report))
    if not report.valid:
        raise typer.Exit(1)


@app.command(name="strategies")
def strategies_(as_json: AS_JSON = False) -> None:
    """List the strategies and where they come from."""
    strategies = known_strategies()
    show(
        as_json,
        lambda: [
            {"name": strategy.name, "description": strategy.description, "source": strategy.source}
            for strategy in strategies.values()
        ],
        lambda: [plan_tables.strategies_table(strategies)],
    )
