"""`memplan history blame`: what caused each change."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import (
    BRANCH,
    LIMIT,
    MODEL,
    OF_PROJECT,
    OF_STRATEGY,
    ROWS,
    STORE,
    VARIANT,
    limit_of,
    opened_to_read,
    watched_series,
)
from memplan_engine.cli.options import ALL_ROWS, AS_JSON
from memplan_engine.cli.output import show
from memplan_engine.errors import InputError
from memplan_engine.history.blame import blame_change
from memplan_engine.history.selecting import last_branch, select_commit, select_series
from memplan_engine.reporters.history.change_words import GONE
from memplan_engine.reporters.history.history_tables import blame_parts, blame_summary


@app.command(name="history blame")
def blame(
    model: MODEL = "",
    variant: VARIANT = "",
    strategy: OF_STRATEGY = "",
    branch: BRANCH = None,
    commit: Annotated[str, typer.Option(help="Only the change of this commit.", show_default=False)] = "",
    project: OF_PROJECT = "",
    limit: LIMIT = None,
    rows: ROWS = 10,
    all_rows: ALL_ROWS = False,
    as_json: AS_JSON = False,
    store: STORE = None,
) -> None:
    """Tell the commit, the tensor and the line of source of each change.

    The graphs of both sides are in the store; they are planned and compared as `memplan diff` does.
    """
    allowed = limit_of(limit)
    with opened_to_read(store) as history:
        series = select_series(history, model, variant=variant, project=project, strategy=strategy)
        wanted = select_commit(history, commit) if commit else ""
        if wanted and branch is None:
            branch = last_branch(history, series, wanted)
        watched = watched_series(history, series, branch, allowed)
        of_series = (each.changes if all_rows or commit else each.changes[-rows:] for each in watched)
        changes = [pair for pairs in of_series for pair in pairs]
        if wanted:
            changes = [pair for pair in changes if pair[0].after.run.commit == wanted]
            if not changes:
                found = f"no change of memory{f' on {branch}' * bool(branch)}"
                if any(wanted in each.left for each in watched):
                    found = f"a commit that {branch} has left: {GONE}"
                expected = "a commit with one: without --commit all are told"
                raise InputError(history.name, f"commit {commit}", found, expected)
        blamed = [(blame_change(change, history.graph), state) for change, state in changes]
    meant = [word for each in watched for word in each.meant]
    show(as_json, lambda: blame_summary(blamed, meant), lambda: blame_parts(blamed, meant))
