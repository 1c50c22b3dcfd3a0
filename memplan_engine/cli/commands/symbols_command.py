"""The verbs about symbolic sizes: formulas, one plan over a range, buckets, the arena over one symbol."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.analysis.claims import counted
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON, FILE, REUSE, STRATEGY, open_file, with_preparation
from memplan_engine.cli.output import show
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation, prepare, range_options
from memplan_engine.reporters import symbol_tables
from memplan_engine.scope import scope_words
from memplan_engine.symbolic import plan_buckets, revalidate, schema_of
from memplan_engine.symbolic.one_symbol import POINTS
from memplan_engine.symbolic.one_symbol import sweep as sweep_over

SYMBOL = Annotated[str, typer.Argument(help="The symbol to vary.", metavar="symbol", show_default=False)]


@app.command()
@with_preparation(without=REUSE)
def symbols(
    file: FILE,
    how: Preparation,
    as_json: AS_JSON = False,
    names: Annotated[
        bool, typer.Option("--names", help="Show names instead of numbers in the table.")
    ] = False,
    table: Annotated[bool, typer.Option("--table", help="Also print the step × partition table.")] = False,
) -> None:
    """Show the symbolic sizes of FILE, its peak as a formula, and a plan valid for all their values.

    The plan is tract's memory schema: buffers of disjoint lifetimes share a partition.
    """
    graph, at = _symbolic(file, how)
    schema = schema_of(graph, at, **range_options(graph, how))
    show(
        as_json,
        lambda: symbol_tables.symbols_summary(graph, schema, at),
        lambda: symbol_tables.symbols_tables(graph, schema, at, names if table else None),
    )


@app.command(name="range")
@with_preparation(without=REUSE)
def range_(file: FILE, how: Preparation, strategy: STRATEGY = "auto", as_json: AS_JSON = False) -> None:
    """Plan at the hints (or --symbol values) and check the offsets over the full range of the symbols.

    Exit code 1 when they fail somewhere; the first failing value is named.
    """
    graph, at = _symbolic(file, how)
    plan = make_plan(prepare(graph, replace(how, symbols=tuple(at.items()))), strategy)
    report = revalidate(plan)
    show(
        as_json,
        lambda: symbol_tables.range_summary(plan, report),
        lambda: symbol_tables.range_tables(plan, report),
    )
    if not report.valid:
        raise typer.Exit(1)


@app.command()
@with_preparation(without=REUSE)
def buckets(
    file: FILE,
    over: SYMBOL,
    highs: Annotated[
        str, typer.Argument(help="Upper limits of the buckets, such as 128,256,512.", show_default=False)
    ],
    how: Preparation,
    strategy: STRATEGY = "auto",
    as_json: AS_JSON = False,
) -> None:
    """Plan each bucket of one symbol, and show the memory it wastes."""
    graph, at = _symbolic(file, how)
    table = plan_buckets(
        graph, over, _numbers(highs, "buckets"), strategy, values=at, **range_options(graph, how)
    )
    show(
        as_json,
        lambda: symbol_tables.buckets_summary(table),
        lambda: [
            symbol_tables.buckets_table(graph.name, table),
            symbol_tables.counted_line(counted(table.buckets[0].plan.problem)),
        ],
    )


@app.command()
@with_preparation(without=REUSE)
def sweep(
    file: FILE,
    over: SYMBOL,
    how: Preparation,
    strategy: STRATEGY = "auto",
    values: Annotated[str, typer.Option(help="Values, such as 1,2,4 (default: spread over the range).")] = "",
    points: Annotated[int, typer.Option(help="Number of values to spread over the range.")] = POINTS,
    as_json: AS_JSON = False,
) -> None:
    """Show arena, lower bound and partition plan as functions of one symbol."""
    graph, at = _symbolic(file, how)
    numbers = _numbers(values, "--values") if values else None
    swept = sweep_over(graph, over, numbers, strategy, at=at, points=points, **range_options(graph, how))
    show(
        as_json,
        lambda: symbol_tables.sweep_summary(swept),
        lambda: [
            symbol_tables.sweep_table(graph.name, swept),
            symbol_tables.counted_line(scope_words(swept.scope)),
        ],
    )


def _symbolic(file: Path, how: Preparation) -> tuple[Graph, dict[str, int]]:
    """The graph of `file` with its symbols, and the values given for some of them."""
    loaded, remaining = open_file(file, how, keep_symbols=True)
    if not isinstance(loaded, Graph):
        kind = "a finished plan" if isinstance(loaded, Plan) else "buffers"
        raise InputError(file.name, "", kind, "a graph with symbols")
    if not loaded.symbols:
        raise InputError(file.name, "", "a graph without symbols", "one captured with symbolic sizes")
    return loaded, dict(remaining.symbols)


def _numbers(text: str, source: str) -> list[int]:
    """ "128,256" as numbers; raises InputError naming the one that is none."""
    numbers = []
    for part in (part.strip() for part in text.split(",")):
        if not part.isascii() or not part.isdigit() or len(part) > 18:
            raise InputError(source, "", repr(part), "whole numbers separated by commas")
        numbers.append(int(part))
    return numbers
