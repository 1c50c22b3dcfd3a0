"""The verb that replays a strategy, decision by decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import ALL_ROWS, AS_JSON, FILE, STRATEGY, open_problem, with_preparation
from memplan_engine.cli.output import check_targets, show
from memplan_engine.errors import InputError
from memplan_engine.preparation import Preparation
from memplan_engine.replay.columns import replay_summary, step_summary
from memplan_engine.replay.make import make_replay
from memplan_engine.reporters import replay_tables
from memplan_engine.system import write_atomically


@app.command()
@with_preparation
def replay(
    file: FILE,
    how: Preparation,
    strategy: STRATEGY = "greedy_by_size",
    step: Annotated[
        int | None,
        typer.Option(help="Show only this decision, in detail; 1 is the first.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the whole replay (.json).")
    ] = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Show every decision of a strategy: which buffer came next, where it went, and why."""
    problem = open_problem(file, how)
    check_targets((".json",), file, output)
    decisions = make_replay(problem, strategy)
    if step is not None and not 1 <= step <= len(decisions):
        raise InputError("--step", "", f"{step:,}", f"1 to {len(decisions):,}")
    if output:
        write_atomically(output, f"{json.dumps(replay_summary(decisions))}\n".encode())
    if step is None:
        show(
            as_json,
            lambda: replay_summary(decisions),
            lambda: replay_tables.replay_tables(decisions, all_rows),
        )
        return
    chosen = decisions.steps[step - 1]
    show(as_json, lambda: step_summary(chosen), lambda: replay_tables.step_tables(chosen))
