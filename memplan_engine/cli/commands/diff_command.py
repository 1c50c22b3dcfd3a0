"""`memplan diff`: what changed between two plans, and whether that is a regression."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    ALL_ROWS,
    AS_JSON,
    SECONDS,
    SEED,
    THREADS,
    make_limits,
    open_plan,
    with_preparation,
)
from memplan_engine.cli.output import as_json_text, as_text, put
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.diffing.regression import Diff, Limit, diff, parse_limit
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.diff_markdown import diff_markdown
from memplan_engine.reporters.diff_tables import diff_summary, diff_tables
from memplan_engine.system import write_atomically
from memplan_engine.verify.validate import validate_plan

FILE_WIDTH = 160
"""Letters in a line of text that is written to a file."""
SIDE = "a graph, a plan, buffers or a recording"


Format = Literal["text", "markdown", "json"]
SUFFIXES: dict[str, Format] = {".txt": "text", ".md": "markdown", ".json": "json"}


@app.command(name="diff")
@with_preparation
def diff_(
    base: Annotated[Path, typer.Argument(help=f"Before: {SIDE}", show_default=False)],
    head: Annotated[Path, typer.Argument(help=f"After: {SIDE}", show_default=False)],
    how: Preparation,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Strategy for both sides (default: auto). Without it, finished plans are kept as they are.",
            show_default=False,
        ),
    ] = None,
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    fail_above: Annotated[
        str | None,
        typer.Option(
            help="Largest growth of the arena allowed: 5%, 10MiB or bytes. Exit code 1 above it.",
            show_default=False,
        ),
    ] = None,
    written_as: Annotated[
        Format | None,
        typer.Option("--format", help="Output format (default: by the suffix of --output, else text)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write to a .txt, .md or .json file instead of stdout."),
    ] = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Explain why HEAD needs more memory than BASE: which buffers, from which lines, at which peak."""
    limit = None if fail_above is None else parse_limit(fail_above)
    output_format = _format(written_as, output, as_json)
    if output:
        for source in (base, head):
            check_target(output, (output.suffix.lower(),), source)
    plans = [_side(file, how, strategy, seconds, seed, threads) for file in (base, head)]
    changes = diff(*_told_apart(plans, (base, head)))
    text = _as_format(changes, limit, output_format, all_rows, FILE_WIDTH if output else None)
    if output:
        write_atomically(output, text.encode("utf-8", "surrogatepass"))
    else:
        put(text)
    if limit and limit.exceeded(changes):
        raise typer.Exit(1)


def _told_apart(plans: list[Plan], files: tuple[Path, Path]) -> list[Plan]:
    """`plans`, called as their files where both have one name."""
    if plans[0].problem.name != plans[1].problem.name:
        return plans
    names = [file.stem for file in files]
    names = names if names[0] != names[1] else [str(file) for file in files]
    return [
        replace(plan, problem=replace(plan.problem, name=name))
        for plan, name in zip(plans, names, strict=True)
    ]


def _format(written_as: Format | None, output: Path | None, as_json: bool) -> Format:
    """The format that the options and the suffix of `output` ask for; InputError for two at once."""
    if as_json and written_as not in (None, "json"):
        raise InputError("--json", "", f"--format {written_as}", "one of them")
    if as_json or written_as:
        return "json" if as_json else written_as or "text"
    if output and output.suffix.lower() not in SUFFIXES:
        raise InputError(str(output), "", f"the suffix {output.suffix!r}", ".txt, .md, .json, or a --format")
    return SUFFIXES[output.suffix.lower()] if output else "text"


def _side(
    file: Path, how: Preparation, strategy: str | None, seconds: float | None, seed: int, threads: int
) -> Plan:
    """The plan of one side: a finished one as it is unless a strategy is asked for, all else planned."""
    opened = open_plan(file, how, strategy)
    if isinstance(opened, Plan):
        report = validate_plan(opened, replay=False)
        if not report.valid:
            raise InputError(file.name, "", report.violations[0].message, "a plan that is valid")
        return opened
    name = strategy or "auto"
    limits = make_limits(name, seconds, seed, threads)
    return solve_in_sight(lambda: make_plan(opened, name, limits=limits), limits)[0]


def _as_format(
    comparison: Diff, limit: Limit | None, output_format: Format, every_row: bool, width: int | None
) -> str:
    if output_format == "json":
        return as_json_text(diff_summary(comparison, limit))
    if output_format == "markdown":
        return diff_markdown(comparison, limit)
    return as_text(diff_tables(comparison, limit, every_row), width)
