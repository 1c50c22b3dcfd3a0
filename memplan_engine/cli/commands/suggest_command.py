"""`memplan suggest`: what can be done about the peak, each change planned and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.advice.advise import DEFAULT_SECONDS, advise
from memplan_engine.advice.commands import edits_command
from memplan_engine.advice.values import Advice, Suggestion
from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    AS_JSON,
    FILE,
    SEED,
    STRATEGY,
    THREADS,
    make_limits,
    open_file,
    with_preparation,
)
from memplan_engine.cli.output import check_targets, show, tell
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.files import write
from memplan_engine.formats.memplan_json.edits_format import write_edits
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.advice_tables import advice_summary, advice_tables
from memplan_engine.units import count_of, exact, parse_bytes


@app.command(name="suggest")
@with_preparation
def suggest(
    file: FILE,
    how: Preparation,
    capacity: Annotated[
        str | None,
        typer.Option(help="Say which changes make it fit this arena size, such as 512KiB, 100MB or bytes."),
    ] = None,
    strategy: STRATEGY = "auto",
    seconds: Annotated[
        float, typer.Option(help="Time limit for all suggestions together.")
    ] = DEFAULT_SECONDS,
    seed: SEED = 0,
    threads: THREADS = 0,
    number: Annotated[
        int | None, typer.Option("--apply", help="Number of the suggestion that -o and --save-edits write.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="With --apply: write its plan, .json or .csv.")
    ] = None,
    save_edits: Annotated[
        Path | None, typer.Option(help="With --apply: write its buffer edits as memplan/edits JSON.")
    ] = None,
    as_json: AS_JSON = False,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Also show what was tried and saves nothing.")
    ] = False,
) -> None:
    """Suggest what to do about the peak: each change planned and checked, with the bytes that it saves."""
    limit = None if capacity is None else parse_bytes(capacity, "--capacity")
    if number is None and (output or save_edits):
        raise InputError("--apply", "", "no number", "which suggestion to write")
    limits = make_limits(strategy, seconds, seed, threads)
    loaded, prepared = open_file(file, how)
    check_targets((".json", ".csv"), file, output)
    check_targets((".json",), file, save_edits)
    advice, _ = solve_in_sight(
        lambda: advise(loaded, prepared, strategy=strategy, capacity=limit, limits=limits), limits
    )
    if number is not None:
        chosen = _chosen(advice, number)
        if output:
            write(chosen.plan, output)
        if save_edits:
            write_edits(chosen.all_edits, save_edits)
            command = edits_command(chosen, str(file), str(save_edits), how)
            changes = f"{count_of(len(chosen.all_edits), 'change')} of buffers"
            tell(f"{save_edits} has {changes}; the plan of {exact(chosen.arena_bytes)}: {command}")
    show(
        as_json,
        lambda: advice_summary(advice, str(file), how),
        lambda: advice_tables(advice, str(file), how, all_rows),
    )


def _chosen(advice: Advice, number: int) -> Suggestion:
    count = len(advice.suggestions)
    if not 1 <= number <= count:
        raise InputError("--apply", "", str(number), f"1 to {count}" if count else "no suggestion at all")
    return advice.suggestions[number - 1]
