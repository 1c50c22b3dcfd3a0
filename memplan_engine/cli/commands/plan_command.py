"""The verbs that make plans: one, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    AS_JSON,
    CAPACITY,
    FILE,
    SECONDS,
    SEED,
    STRATEGY,
    THREADS,
    make_limits,
    open_problem,
    with_preparation,
)
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.files import write
from memplan_engine.formats.about import may_have_about, read_about
from memplan_engine.plan import Plan
from memplan_engine.planner import compare, make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.reporters import plan_tables
from memplan_engine.reporters.compare_words import comparison_words
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.strategies import get_strategy


@app.command()
@with_preparation
def plan(
    file: FILE,
    how: Preparation,
    strategy: STRATEGY = "auto",
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    capacity: CAPACITY = None,
    core: Annotated[
        Path | None,
        typer.Option(
            help="With --capacity: write the core, the few buffers that alone cannot fit (.json or .csv)."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the plan (.json or .csv).")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Place every buffer of FILE in one arena.

    Ctrl-C returns the best plan so far; a second one exits at once.
    """
    limit = None
    if capacity is not None or core:
        # Here, not above: a plan without a capacity does not wait for what decisions need.
        from memplan_engine.cli.commands.capacity_option import answer, capacity_of

        limit = capacity_of(capacity, strategy)
    limits = make_limits(strategy, seconds, seed, threads)
    problem = open_problem(file, how)
    check_targets((".json", ".csv"), file, output, core)
    if limit is not None:
        answer(problem, limit, strategy, limits, output=output, core=core, as_json=as_json)
        return
    best, cut_by = solve_in_sight(lambda: make_plan(problem, strategy, limits=limits), limits)
    if output:
        write(best, output)
    show(
        as_json,
        lambda: plan_tables.plan_summary(best, cut_by) | {"offsets": plan_tables.offsets(best)},
        lambda: [plan_tables.plan_table(best, cut_by), *_lesson(file)],
    )


def _lesson(file: Path) -> list[RenderableType]:
    return plan_tables.lesson(read_about(file)) if may_have_about(file) else []


@app.command(name="compare")
@with_preparation
def compare_(
    file: FILE,
    how: Preparation,
    names: Annotated[str, typer.Option("--strategies", help="Comma-separated names, or all.")] = "all",
    as_json: AS_JSON = False,
) -> None:
    """Compare strategies on the same problem."""
    chosen = None if names == "all" else [name.strip() for name in names.split(",")]
    for name in chosen or ():
        get_strategy(name)
    problem = open_problem(file, how)
    plans = compare(problem, chosen)
    show(
        as_json,
        lambda: [plan_tables.plan_summary(plan) for plan in plans],
        lambda: [*_told(plans), plan_tables.compare_table(plans), *plan_tables.counted_lines(problem)],
    )


def _told(plans: list[Plan]) -> list[RenderableType]:
    return [plain_text(sentence_case(words)) for words in comparison_words(plans)] if plans else []
