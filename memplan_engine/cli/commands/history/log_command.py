"""`memplan history log`: what was recorded."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import (
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
    opened_to_read,
    watched_series,
)
from memplan_engine.cli.options import ALL_ROWS
from memplan_engine.cli.output import as_json_text, as_text, put
from memplan_engine.history.changes import in_order, last_recordings
from memplan_engine.history.selecting import check_branch, select_series
from memplan_engine.reporters.history.history_tables import point_summary, points_table
from memplan_engine.reporters.history.point_formats import as_otava_csv

RECORDINGS = Annotated[bool, typer.Option("--recordings", help="List each recording of a commit.")]


@app.command(name="history log")
def log(
    model: MODEL = "",
    variant: VARIANT = "",
    strategy: OF_STRATEGY = "",
    branch: Annotated[str | None, typer.Option(help="Only this branch.", show_default=False)] = None,
    project: OF_PROJECT = "",
    recordings: RECORDINGS = False,
    rows: ROWS = 25,
    all_rows: ALL_ROWS = False,
    written_as: Annotated[
        Literal["text", "json", "otava-csv"], typer.Option("--format", help="Output format.")
    ] = "text",
    fail: FAIL_ON_GROWTH = False,
    limit: LIMIT = None,
    store: STORE = None,
) -> None:
    """List what was recorded: the figures of each model at each commit.

    A commit that was recorded again is listed once, as it was recorded last, unless --recordings is given.
    """
    allowed = limit_of(limit)
    with opened_to_read(store) as history:
        series = select_series(history, model, variant=variant, project=project, strategy=strategy)
        points = in_order(history.points(series), history.runs(project or None))
        watched = watched_series(history, series, branch, allowed) if fail else []
        if branch is not None:
            check_branch(history, series, branch)
        name = history.name
    if branch is not None:
        points = [point for point in points if point.run.branch == branch]
    if not recordings:
        points = last_recordings(points)
    if written_as == "json":
        put(as_json_text([point_summary(point) for point in points]))
    elif written_as == "otava-csv":
        put(as_otava_csv(points))
    else:
        put(as_text([points_table(points, name, None if all_rows else rows)]))
    fail_on_growth(fail, watched)
