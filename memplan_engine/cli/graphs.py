"""The verbs that ask a graph about itself: which values can be planned, what reuse would save."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine import graph_tables, reuse_tables
from memplan_engine.cli.app import app
from memplan_engine.cli.options import ALIGNMENT, AS_JSON, FILE, STRATEGY, SYMBOLS, open_graph, parse_symbols
from memplan_engine.cli.output import show
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT
from memplan_engine.managed import managed_values
from memplan_engine.preparation import Preparation, prepared_schedule
from memplan_engine.reuse import savings


@app.command()
def values(
    file: FILE,
    symbol: SYMBOLS = None,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every value.")] = False,
) -> None:
    """List which values can be planned, and why each other one cannot (Static Runtime's rules)."""
    graph = open_graph(file, Preparation(symbols=tuple(parse_symbols(symbol or []).items())))
    found = managed_values(graph)
    show(
        as_json,
        lambda: graph_tables.values_summary(found),
        lambda: graph_tables.values_tables(graph.name, found, all_rows),
    )


@app.command()
def reuse(
    file: FILE,
    strategy: STRATEGY = "auto",
    alignment: ALIGNMENT = None,
    symbol: SYMBOLS = None,
    streams: Annotated[int | None, typer.Option(help="Run up to this many ops at one step.")] = None,
    as_json: AS_JSON = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every op.")] = False,
) -> None:
    """Show what writing in place and concatenating without copies would save."""
    how = Preparation(alignment, symbols=tuple(parse_symbols(symbol or []).items()), streams=streams)
    graph = open_graph(file, how)
    found = savings(
        graph,
        prepared_schedule(graph, how),
        strategy=strategy,
        alignment=DEFAULT_ALIGNMENT if alignment is None else alignment,
    )
    show(
        as_json,
        lambda: reuse_tables.reuse_summary(found),
        lambda: reuse_tables.reuse_tables(graph.name, found, all_rows),
    )
