"""`memplan check`: do models need no more than they may, and no more than before?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from memplan_engine.checks.ceilings import Ceilings, parse_ceiling
from memplan_engine.checks.checked_graphs import ModelSource
from memplan_engine.checks.checking import CheckRequest, check_models
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.cli.app import app
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.options import AS_JSON, STRATEGY, with_preparation
from memplan_engine.cli.output import as_json_text, as_text, put
from memplan_engine.diffing.regression import parse_limit
from memplan_engine.errors import InputError
from memplan_engine.files import check_target
from memplan_engine.preparation import Preparation
from memplan_engine.reporters.checks.badges import check_folder, write_badges
from memplan_engine.reporters.checks.check_markdown import check_markdown
from memplan_engine.reporters.checks.check_tables import check_summary, check_tables
from memplan_engine.system import write_atomically

SIZE = "such as 52MiB or bytes; exit code 1 above it."
MAX_ARENA = Annotated[str | None, typer.Option(help=f"Largest arena of each model, {SIZE}")]
MAX_PEAK = Annotated[
    str | None, typer.Option(help=f"Most bytes live at one step, temporaries included, {SIZE}")
]
MAX_RESERVED = Annotated[
    str | None,
    typer.Option(help=f"Most that PyTorch's allocator reserves in an eager run of a factory, {SIZE}"),
]
FAIL_ABOVE = Annotated[
    str | None,
    typer.Option(help="Largest growth since --base allowed: 0, 5%, 10MiB or bytes; exit code 1 above it."),
]


@app.command()
@with_preparation
def check(
    models: Annotated[
        list[str],
        typer.Argument(help="Graph files, or factories: package.module:factory", show_default=False),
    ],
    how: Preparation,
    max_arena: MAX_ARENA = None,
    max_peak: MAX_PEAK = None,
    max_reserved: MAX_RESERVED = None,
    base: Annotated[
        str | None, typer.Option(help="What to compare with: a commit, or, for one model, a graph file.")
    ] = None,
    fail_above: FAIL_ABOVE = None,
    training: Annotated[
        Literal["step"] | None, typer.Option(help="Of factories: a whole training step.")
    ] = None,
    strategy: STRATEGY = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to a .md or .json file instead of stdout.")
    ] = None,
    badges: Annotated[
        Path | None, typer.Option(help="Folder to write a badge of each model to, for shields.io's endpoint.")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Check that models need no more memory than they may, and no more than at another commit.

    Plans are made with one thread, a seed and a limit in nodes: the same bytes on each machine.
    """
    if fail_above is not None and base is None:
        raise InputError("--fail-above", "", "no --base", "one, which growth is counted from")
    if output:
        check_target(output, (".md", ".json"))
    if badges:
        check_folder(badges)
    limits = (
        parse_ceiling(given, option)
        for option, given in (
            ("--max-arena", max_arena),
            ("--max-peak", max_peak),
            ("--max-reserved", max_reserved),
        )
    )
    request = CheckRequest(
        [ModelSource(each, is_factory(each, None), training is not None) for each in models],
        Ceilings(*limits),
        base or "",
        None if fail_above is None else parse_limit(fail_above),
        strategy,
        how,
    )
    checks = check_models(request, Path.cwd())
    _write(checks, output, as_json, f"compared with {base}" if base else "")
    if badges:
        write_badges(checks, badges)
    if not all(each.passed for each in checks):
        raise typer.Exit(1)


def _write(checks: tuple[ModelCheck, ...], output: Path | None, as_json: bool, compared: str) -> None:
    if as_json or (output and output.suffix.lower() == ".json"):
        text = as_json_text(check_summary(checks))
    else:
        text = check_markdown(checks, compared) if output else as_text(check_tables(checks))
    if output:
        write_atomically(output, text.encode("utf-8", "surrogatepass"))
    else:
        put(text)
