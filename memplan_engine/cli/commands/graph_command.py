"""The verbs that ask a graph about itself: which values can be planned, what reuse would save."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.analysis.managed_values import managed_values
from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    AS_JSON,
    FILE,
    REUSE,
    STRATEGY,
    SYMBOLS,
    open_graph,
    parse_symbols,
    with_preparation,
)
from memplan_engine.cli.output import show
from memplan_engine.preparation import Preparation, range_options
from memplan_engine.reporters import graph_tables
from memplan_engine.rewrites.reuse import savings


@app.command()
def values(
    file: FILE,
    symbol: SYMBOLS = None,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every value.")] = False,
) -> None:
    """List which values can be planned, and why each other one cannot (Static Runtime's rules)."""
    graph = open_graph(file, Preparation(symbols=tuple(parse_symbols(symbol or []).items())))
    managed = managed_values(graph)
    show(
        as_json,
        lambda: graph_tables.values_summary(managed),
        lambda: graph_tables.values_tables(graph.name, managed, all_rows),
    )


@app.command()
@with_preparation(without=REUSE)
def reuse(
    file: FILE,
    how: Preparation,
    strategy: STRATEGY = "auto",
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every op.")] = False,
) -> None:
    """Show what writing in place and concatenating without copies would save."""
    graph = open_graph(file, how)
    saved = savings(graph, strategy=strategy, **range_options(graph, how))
    show(
        as_json,
        lambda: graph_tables.reuse_summary(saved),
        lambda: graph_tables.reuse_tables(graph.name, saved, all_rows),
    )
