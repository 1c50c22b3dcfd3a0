"""`memplan history baseline`: what this commit is to be compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import (
    AGAINST,
    COMMIT_NAME,
    MODEL,
    OF_PROJECT,
    OF_STRATEGY,
    STORE,
    VARIANT,
    commit_named,
    opened_to_read,
    write_text,
)
from memplan_engine.cli.options import AS_JSON
from memplan_engine.cli.output import as_json_text, show
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.history.baselines import baseline_commit, baseline_points
from memplan_engine.history.git.git_commit import run_of
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.history.selecting import select_series
from memplan_engine.reporters.history.history_tables import point_summary, points_table

OUTPUT = Annotated[Path | None, typer.Option("-o", "--output", help="Write the figures to a file (.json).")]


@app.command(name="history baseline")
def baseline(
    model: MODEL = "",
    variant: VARIANT = "",
    strategy: OF_STRATEGY = "",
    commit: COMMIT_NAME = "",
    against: AGAINST = "",
    project: OF_PROJECT = "",
    output: OUTPUT = None,
    as_json: AS_JSON = False,
    store: STORE = None,
) -> None:
    """Show what this commit is to be compared with: what was recorded where its branch began.

    That is the last commit in common with --against, or the nearest before it of which there is a point; on
    the branch itself the commit before.
    """
    if output:
        check_target(output, (".json",))
    run = run_of(project=project, commit=commit_named(commit))
    with opened_to_read(store) as history:
        series = select_series(history, model, variant=variant, project=project, strategy=strategy)
        base = baseline_commit(run, against=against)
        points = list(baseline_points(history, series, base).values())
        if not points:
            place = f"at or before {base[:SHORT_HASH]}" if base else f"before {run.label}"
            raise InputError(history.name, "", f"no such point {place}", "what that commit needs, recorded")
    summary = [point_summary(point) for point in points]
    if output:
        write_text(output, as_json_text(summary))
        return
    show(as_json, lambda: summary, lambda: [points_table(points, f"{run.label} is compared with")])
