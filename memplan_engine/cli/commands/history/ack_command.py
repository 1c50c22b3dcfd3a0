"""`memplan history ack`: a change is meant."""

from __future__ import annotations

from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.commands.history.history_options import (
    MODEL,
    OF_PROJECT,
    OF_STRATEGY,
    STORE,
    VARIANT,
    opened_to_write,
)
from memplan_engine.cli.output import as_text, put
from memplan_engine.errors import InputError
from memplan_engine.history.acknowledging import acknowledge_commit, acknowledged, withdraw
from memplan_engine.history.git.git_commit import author_name
from memplan_engine.history.selecting import select_commit, select_series
from memplan_engine.reporters.history.change_words import arena_words, said_words
from memplan_engine.reporters.rich_tables import plain_text

COMMIT = Annotated[str, typer.Argument(help="The commit whose change is meant", show_default=False)]
REASON = Annotated[str, typer.Option("-m", "--reason", help="Why.", prompt=False)]
AUTHOR = Annotated[str, typer.Option(help="Who says so (default: as git has it).", show_default=False)]

WITHDRAW = Annotated[bool, typer.Option("--withdraw", help="Take back what was said of the commit.")]


@app.command(name="history ack")
def ack(
    commit: COMMIT,
    model: MODEL = "",
    reason: REASON = "",
    author: AUTHOR = "",
    take_back: WITHDRAW = False,
    variant: VARIANT = "",
    strategy: OF_STRATEGY = "",
    project: OF_PROJECT = "",
    store: STORE = None,
) -> None:
    """Acknowledge that the change of a commit is meant, and why.

    It counts in whatever run the commit is recorded again, and growth is measured from there on.
    """
    if take_back and (reason or author):
        raise InputError("--withdraw", "", "--reason or --author beside it", "one of the two")
    if not take_back and not reason.strip():
        raise InputError("--reason", "", "no such text", "why the change is meant: -m 'a wider head'")
    with opened_to_write(store, make=False) as history:
        series = select_series(history, model, variant=variant, project=project, strategy=strategy)
        named = select_commit(history, commit)
        if take_back:
            told = [
                f"{each.series.label}: not meant any more: {said_words(each)}"
                for each in withdraw(history, series, named)
            ]
        else:
            said = acknowledged(history, series, named)
            changes = acknowledge_commit(history, series, named, reason, author or author_name())
            told = [
                f"{each.after.series.label}: {arena_words(each)}: {reason}"
                + (
                    f", in place of: {said_words(earlier)}"
                    if (earlier := said.get(each.after.series))
                    else ""
                )
                for each in changes
            ]
    put(as_text([plain_text(text) for text in told]))
