"""`memplan history import`: what was kept before there was a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.factory_options import MODEL_NAME, VARIANT_NAME
from memplan_engine.cli.commands.history.history_options import (
    BRANCH_NAME,
    PROJECT,
    STORE,
    opened_to_write,
    seconds_of,
)
from memplan_engine.cli.output import as_text, put
from memplan_engine.errors import InputError
from memplan_engine.history.importing import OldFile, is_store, measure_old
from memplan_engine.history.opening import open_history
from memplan_engine.reporters.history.history_tables import points_table
from memplan_engine.units import count_of

FILES = Annotated[list[Path], typer.Argument(help="Graphs, plans, or stores", show_default=False)]
COMMITS = Annotated[
    list[str] | None,
    typer.Option("--commit", help="The commit of each file, in their order. Repeatable.", show_default=False),
]
TIMES = Annotated[
    list[str] | None,
    typer.Option("--time", help="When each was made, in their order. Repeatable.", show_default=False),
]


@app.command(name="history import")
def import_(
    files: FILES,
    commits: COMMITS = None,
    times: TIMES = None,
    model: MODEL_NAME = "",
    variant: VARIANT_NAME = "",
    branch: BRANCH_NAME = "",
    project: PROJECT = "",
    store: STORE = None,
) -> None:
    """Import older plans and graphs, each with its commit, or what another store has.

    Files stand in the order of history, the oldest first; --commit and --time are given once for each.
    """
    stores = [file for file in files if is_store(file)]
    if stores:
        if len(stores) < len(files) or commits or times:
            raise InputError(str(stores[0]), "", "a store beside other files or options", "stores alone")
        _merge(stores, store)
        return
    old = _in_pairs(files, commits or [], [seconds_of(each) for each in times or []])
    measured, parent = [], ""
    for each in old:
        run, point = measure_old(
            each, project=project, model=model, variant=variant, branch=branch, parent=parent
        )
        measured.append((run, point))
        parent = run.commit
    with opened_to_write(store) as history:
        points = [point for run, new in measured for point in history.record(run, [new]).points]
        name = history.name
    put(as_text([points_table(points, name)]))


def _in_pairs(files: list[Path], commits: list[str], times: list[int]) -> list[OldFile]:
    """Each file with its commit and its time."""
    for option, given in (("--commit", len(commits)), ("--time", len(times))):
        if given not in (0, len(files)):
            raise InputError(option, "", f"{given} for {count_of(len(files), 'file')}", "one for each file")
    named = commits or [""] * len(files)
    made: list[int | None] = [*times] or [None] * len(files)
    return [OldFile(*each) for each in zip(files, named, made, strict=True)]


def _merge(others: list[Path], store: str | None) -> None:
    with opened_to_write(store) as history:
        for other in others:
            with open_history(other, read_only=True) as source:
                added = history.merge(source)
            told = f"{count_of(added.runs, 'run')}, {count_of(added.points, 'point')}"
            put(f"{other}: {told}, {count_of(added.graphs, 'graph')} new\n")
