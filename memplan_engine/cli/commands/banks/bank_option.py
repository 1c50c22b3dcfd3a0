"""`--bank`: plans over several memories, and what it takes to ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from memplan_engine.banked.banked_plan import BankedPlan, Objective
from memplan_engine.cli.commands.capacity_option import EXIT_CODES
from memplan_engine.cli.output import show, tell
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.errors import InputError, PlanError
from memplan_engine.files import write
from memplan_engine.problem import Problem
from memplan_engine.reporters.banks.bank_tables import banked_summary, banked_tables
from memplan_engine.reporters.banks.bank_what_if import compared_summary, compared_tables
from memplan_engine.reporters.banks.move_tables import moves_summary, moves_tables
from memplan_engine.spilling.bank_planner import BankDecision, decide_banks, told
from memplan_engine.spilling.moves.move_planner import MoveDecision, decide_moves
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.what_if.edits import Edit


def refuse_with_banks(**options: object) -> None:
    """Raise InputError where one of `options`, which are for one arena, was given with banks."""
    for name, value in options.items():
        if value is not None:
            expected = "none for a plan over several banks: each bank has its own, --bank NAME=CAPACITY"
            raise InputError(f"--{name}", "", str(value), expected)


def decide_in_sight(
    problem: Problem, strategy: str, objective: Objective, limits: SolveLimits
) -> BankDecision:
    """The decision, with what the terminal shows meanwhile."""
    return solve_in_sight(
        lambda: decide_banks(problem, strategy, objective=objective, limits=limits), limits
    )[0]


def moves_in_sight(problem: Problem, strategy: str, limits: SolveLimits) -> MoveDecision:
    """The same where buffers may move."""
    return solve_in_sight(lambda: decide_moves(problem, strategy, limits=limits), limits)[0]


def answer_banks(
    problem: Problem,
    strategy: str,
    objective: Objective,
    limits: SolveLimits,
    *,
    moves: bool = False,
    output: Path | None = None,
    emit: Callable[[BankedPlan], None] | None = None,
    as_json: bool = False,
) -> None:
    """Plan over the banks, with `moves` between them if asked, write what is asked for, `emit` it, print it;
    raises typer.Exit with the exit code of a capacity where there is no plan."""
    if moves and objective is not Objective.TRAFFIC:
        expected = "--objective traffic: moves are there to lower it"
        raise InputError("--moves", "", f"--objective {objective}", expected)
    decision: BankDecision | MoveDecision = (
        moves_in_sight(problem, strategy, limits)
        if moves
        else decide_in_sight(problem, strategy, objective, limits)
    )
    if output and decision.plan is not None:
        write(decision.plan, output)
    elif output:
        tell(f"{output}: not written, for there is no plan: {decision.verdict}")
    if emit and decision.plan is not None:
        emit(decision.plan)
    elif emit:
        tell(f"no C is written: {decision.verdict}")
    if isinstance(decision, MoveDecision):
        moved = decision
        show(as_json, lambda: moves_summary(moved), lambda: moves_tables(moved))
    else:
        stays = decision
        show(as_json, lambda: banked_summary(stays), lambda: banked_tables(stays))
    if decision.plan is None:
        raise typer.Exit(EXIT_CODES[decision.verdict])


def compare_banks(
    problem: Problem,
    changed: Problem,
    strategy: str,
    objective: Objective,
    limits: Callable[[], SolveLimits],
    edits: Sequence[Edit],
    output: Path | None,
    as_json: bool,
    all_rows: bool,
) -> None:
    """Plan a problem before and after over its banks, write the second plan, print both side by side; raises
    typer.Exit with the exit code of a capacity where the second has no room.

    Raises
    ------
    PlanError: there is no plan of the first.
    """
    before, after = (
        decide_in_sight(version, strategy, objective, limits()) for version in (problem, changed)
    )
    if before.plan is None:
        raise PlanError(f"{problem.name}, before any change: {told(before)}")
    if after.plan is None:
        show(as_json, lambda: banked_summary(after), lambda: banked_tables(after))
        raise typer.Exit(EXIT_CODES[after.verdict])
    first, second = before.plan, after.plan
    if output:
        write(second, output)
    show(
        as_json,
        lambda: compared_summary(first, second, edits),
        lambda: compared_tables(first, second, all_rows),
    )
