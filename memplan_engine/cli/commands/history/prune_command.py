"""`memplan history prune`: a store without what says nothing new."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import STORE, opened_to_write, seconds_of
from memplan_engine.cli.output import put
from memplan_engine.units import count_of

NEWEST = Annotated[int, typer.Option(min=0, help="How many of the newest points of each series stay.")]
BEFORE = Annotated[
    str,
    typer.Option(help="Only what was recorded before, as 2026-01-31 (default: all).", show_default=False),
]


@app.command(name="history prune")
def prune(newest: NEWEST = 100, before: BEFORE = "", store: STORE = None) -> None:
    """Remove points between two that say the same, and graphs that no point names any more.

    The first and the last point of each branch, both sides of every change, and what was acknowledged stay:
    the changes that `memplan history blame` tells are the same afterwards.
    """
    moment = seconds_of(before, "--before") if before else None
    with opened_to_write(store, make=False) as history:
        pruned = history.prune(newest, moment)
        left, _ = history.counts()
    told = f"{count_of(pruned.points, 'point')} and {count_of(pruned.graphs, 'graph')} removed"
    put(f"{history.name}: {told}, {count_of(left, 'point')} left\n")
