"""The verbs that ask a graph about itself: which values can be planned, what reuse would save."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.analysis.managed_values import managed_values
from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    ALL_ROWS,
    AS_JSON,
    FILE,
    REUSE,
    STRATEGY,
    SYMBOLS,
    open_graph,
    open_problem,
    parse_symbols,
    with_preparation,
)
from memplan_engine.cli.output import show
from memplan_engine.preparation import Preparation, range_options
from memplan_engine.reporters import graph_tables, training_tables
from memplan_engine.reporters.plan_tables import counted_lines
from memplan_engine.rewrites.reuse import savings


@app.command()
def values(
    file: FILE,
    symbol: SYMBOLS = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """List which values can be planned, and why the others cannot (Static Runtime's rules)."""
    graph = open_graph(file, Preparation(symbols=tuple(parse_symbols(symbol or []).items())))
    managed = managed_values(graph)
    show(
        as_json,
        lambda: graph_tables.values_summary(graph, managed),
        lambda: graph_tables.values_tables(graph, managed, all_rows),
    )


@app.command()
@with_preparation
def phases(
    file: FILE,
    how: Preparation,
    other: Annotated[
        Path | None,
        typer.Argument(help="Another partition of the same model, to compare with.", show_default=False),
    ] = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Show the peak of each phase of a training graph, and what forward saves for backward."""
    problem = open_problem(file, how)
    memory = training_tables.memory_by_phase(problem, None if other is None else open_graph(other, how))
    show(
        as_json,
        lambda: training_tables.phases_summary(memory),
        lambda: [*training_tables.phases_tables(memory, all_rows), *counted_lines(problem)],
    )


@app.command()
@with_preparation(without=REUSE)
def reuse(
    file: FILE,
    how: Preparation,
    strategy: STRATEGY = "auto",
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Show what in-place elementwise ops and zero-copy concat would save."""
    graph = open_graph(file, how)
    saved = savings(graph, strategy=strategy, **range_options(graph, how))
    show(
        as_json,
        lambda: graph_tables.reuse_summary(saved),
        lambda: graph_tables.reuse_tables(graph.name, saved, all_rows),
    )
