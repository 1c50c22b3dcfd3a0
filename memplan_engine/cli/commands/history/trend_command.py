"""`memplan history trend`: the memory of a model over the commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import (
    BRANCH,
    FAIL_ON_GROWTH,
    LIMIT,
    MODEL,
    OF_PROJECT,
    OF_STRATEGY,
    ROWS,
    STORE,
    VARIANT,
    fail_on_growth,
    limit_of,
    only_model,
    opened_to_read,
    watched_series,
    write_text,
)
from memplan_engine.cli.options import ALL_ROWS
from memplan_engine.cli.output import as_json_text, as_text, put
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.history.alarms import Watched
from memplan_engine.history.blame import blame_change
from memplan_engine.history.selecting import select_series
from memplan_engine.reporters.history.history_tables import trend_parts, trend_summary
from memplan_engine.reporters.history.point_formats import as_otava_csv
from memplan_engine.reporters.html.trend_chart import Judged
from memplan_engine.reporters.html.trend_html import trend_page
from memplan_engine.units import format_bytes

OUTPUT = Annotated[Path | None, typer.Option("-o", "--output", help="Self-contained HTML page.")]
Format = Literal["text", "json", "otava-csv"]
FORMAT = Annotated[Format, typer.Option("--format", help="Output format.")]


@app.command(name="history trend")
def trend(
    model: MODEL = "",
    variant: VARIANT = "",
    strategy: OF_STRATEGY = "",
    branch: BRANCH = None,
    project: OF_PROJECT = "",
    output: OUTPUT = None,
    written_as: FORMAT = "text",
    rows: ROWS = 25,
    all_rows: ALL_ROWS = False,
    fail: FAIL_ON_GROWTH = False,
    limit: LIMIT = None,
    store: STORE = None,
) -> None:
    """Show the memory of a model over the commits, and which changes are to be looked at.

    Growth is measured from the last change that was acknowledged, or from the first commit: demand first,
    which the graph itself needs, then what packing loses. Small changes that add up beyond --limit are told,
    too.
    """
    allowed = limit_of(limit)
    if output:
        check_target(output, (".html", ".htm"))
    with opened_to_read(store) as history:
        series = select_series(history, model, variant=variant, project=project, strategy=strategy)
        if not model:
            only_model(series, history.name)
        watched = watched_series(history, series, branch, allowed)
        if not watched:
            raise InputError(history.name, model, "only points of changed files", "one of a commit as it is")
        whole = all_rows or output is not None or written_as == "json"
        told = [
            (each, [(blame_change(change, history.graph), state) for change, state in each.changes[begin:]])
            for each in watched
            for begin in [0 if whole else -rows]
        ]
    _show(told, output, written_as)
    fail_on_growth(fail, watched)


def _show(told: list[tuple[Watched, list[Judged]]], output: Path | None, written_as: Format) -> None:
    if output:
        write_text(output, trend_page(told))
        put(f"{output}: {format_bytes(output.stat().st_size)}\n")
    elif written_as == "json":
        put(as_json_text([trend_summary(watched, blamed) for watched, blamed in told]))
    elif written_as == "otava-csv":
        put(as_otava_csv([point for watched, _ in told for point in watched.points]))
    else:
        for watched, blamed in told:
            put(as_text(trend_parts(watched, blamed)))
