"""The verbs that make plans: one, or several side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from memplan_engine.banked.banked_plan import Objective
from memplan_engine.cli.app import app
from memplan_engine.cli.c_option import c_writer
from memplan_engine.cli.imported_plan import IMPORTED, open_imported
from memplan_engine.cli.options import (
    AS_JSON,
    BANKS,
    CAPACITY,
    FILE,
    MOVES,
    OBJECTIVE,
    PLAN_STRATEGY,
    SECONDS,
    SEED,
    THREADS,
    make_limits,
    open_problem,
    open_with_banks,
    with_preparation,
)
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.files import write, written_suffixes
from memplan_engine.formats.about import may_have_about, read_about
from memplan_engine.plan import Plan
from memplan_engine.planner import compare, make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.reporters import plan_tables
from memplan_engine.reporters.compare_words import comparison_words
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.strategies import get_strategy

CORE = Annotated[
    Path | None,
    typer.Option(
        help="With --capacity: write the core, the few buffers that alone cannot fit (.json or .csv)."
    ),
]
OUTPUT = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Write the plan (.json or .csv; of a model its own kind)."),
]
EMIT_C = Annotated[
    Path | None,
    typer.Option(help="Write a C header (.h) with the offsets, which the compiler checks.", metavar="FILE"),
]
EMIT_LD = Annotated[
    Path | None,
    typer.Option(
        help="With --emit-c: write what a linker script (.ld) has to say of the arena.", metavar="FILE"
    ),
]


@app.command()
@with_preparation
def plan(
    file: FILE,
    how: Preparation,
    strategy: PLAN_STRATEGY = "auto",
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    capacity: CAPACITY = None,
    bank: BANKS = None,
    objective: OBJECTIVE = Objective.TRAFFIC,
    moves: MOVES = False,
    core: CORE = None,
    output: OUTPUT = None,
    emit_c: EMIT_C = None,
    emit_ld: EMIT_LD = None,
    as_json: AS_JSON = False,
) -> None:
    """Place every buffer of FILE in one arena.

    Ctrl-C returns the best plan so far; a second one exits at once.
    """
    if strategy == IMPORTED:
        kept = open_imported(
            file, how, seconds=seconds, seed=seed, threads=threads, capacity=capacity, bank=bank, core=core
        )
        check_targets(written_suffixes(file) if output else (), file, output)
        _hand_over(kept, file, output, c_writer(file, emit_c, emit_ld, None), as_json)
        return
    limit = None
    if capacity is not None or core:
        # Here, not above: a plan without a capacity does not wait for what decisions need.
        from memplan_engine.cli.commands.capacity_option import answer, capacity_of

        limit = capacity_of(capacity, strategy)
    limits = make_limits(strategy, seconds, seed, threads)
    problem = open_with_banks(file, how, bank)
    check_targets(written_suffixes(file) if output else (), file, output)
    check_targets((".json", ".csv"), file, core)
    emit = c_writer(file, emit_c, emit_ld, limit)
    if problem.banks is not None:
        from memplan_engine.cli.commands.banks.bank_option import answer_banks, refuse_with_banks

        refuse_with_banks(capacity=capacity, core=core)
        answer_banks(
            problem, strategy, objective, limits, moves=moves, output=output, emit=emit, as_json=as_json
        )
        return
    _refuse_without_banks(objective, moves)
    if limit is not None:
        answer(
            problem, limit, strategy, limits, output=output, source=file, core=core, emit=emit,
            as_json=as_json,
        )  # fmt: skip
        return
    best, cut_by = solve_in_sight(lambda: make_plan(problem, strategy, limits=limits), limits)
    _hand_over(best, file, output, emit, as_json, cut_by)


def _hand_over(
    plan: Plan,
    file: Path,
    output: Path | None,
    emit: Callable[[Plan], None] | None,
    as_json: bool,
    cut_by: str = "",
) -> None:
    """Write and show a plan of `file`."""
    if output:
        write(plan, output, file)
    if emit:
        emit(plan)
    show(
        as_json,
        lambda: plan_tables.plan_summary(plan, cut_by) | {"offsets": plan_tables.offsets(plan)},
        lambda: [plan_tables.plan_table(plan, cut_by), *_lesson(file)],
    )


def _refuse_without_banks(objective: Objective, moves: bool) -> None:
    """Raise InputError where an option was given that only several banks give a meaning."""
    asked = {
        "--objective": objective is not Objective.TRAFFIC and objective,
        "--moves": moves and "switched on",
    }
    for option, value in asked.items():
        if value:
            raise InputError(option, "", str(value), "banks to choose from: --bank NAME=CAPACITY")


def _lesson(file: Path) -> list[RenderableType]:
    return plan_tables.lesson(read_about(file)) if may_have_about(file) else []


@app.command(name="compare")
@with_preparation
def compare_(
    file: FILE,
    how: Preparation,
    names: Annotated[
        str,
        typer.Option(
            "--strategies", help="Comma-separated names, or all. `imported` is the plan that FILE carries."
        ),
    ] = "all",
    as_json: AS_JSON = False,
) -> None:
    """Compare strategies on the same problem."""
    chosen = None if names == "all" else [name.strip() for name in names.split(",")]
    for name in chosen or ():
        if name != IMPORTED:
            get_strategy(name)
    plans = _with_imported(file, how, chosen) if chosen and IMPORTED in chosen else []
    problem = plans[0].problem if plans else open_problem(file, how)
    plans = plans or compare(problem, chosen)
    show(
        as_json,
        lambda: [plan_tables.plan_summary(plan) for plan in plans],
        lambda: [*_told(plans), plan_tables.compare_table(plans), *plan_tables.counted_lines(problem)],
    )


def _with_imported(file: Path, how: Preparation, names: list[str]) -> list[Plan]:
    """The plan in `file` and plans of its buffers, in the order of `names`."""
    kept = open_imported(file, how)
    made = iter(compare(kept.problem, [name for name in names if name != IMPORTED]))
    return [kept if name == IMPORTED else next(made) for name in names]


def _told(plans: list[Plan]) -> list[RenderableType]:
    return [plain_text(sentence_case(words)) for words in comparison_words(plans)] if plans else []
