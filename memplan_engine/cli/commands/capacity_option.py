"""`memplan plan --capacity`: does it fit?"""

from __future__ import annotations

from pathlib import Path

import typer

from memplan_engine.cli.output import show, tell
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.feasibility.decision import Decision, decide, decides, deciding, find_core
from memplan_engine.files import write
from memplan_engine.problem import Problem
from memplan_engine.reporters.plan_tables import offsets
from memplan_engine.reporters.what_if_tables import decision_summary, decision_tables
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.units import format_bytes, parse_bytes
from memplan_engine.verdict import EXIT_CODES, Verdict


def capacity_of(text: str | None, strategy: str) -> int:
    """The capacity in bytes, for who wants a decision or its core; raises InputError where none is given, or
    where `strategy` does not decide."""
    if text is None:
        raise InputError("--core", "", "no --capacity", "a capacity that may be too small")
    if not decides(strategy):
        raise InputError("--capacity", "", f"--strategy {strategy}", f"one of {', '.join(deciding())}")
    return parse_bytes(text, "--capacity")


def answer(
    problem: Problem,
    capacity: int,
    strategy: str,
    limits: SolveLimits,
    *,
    output: Path | None = None,
    core: Path | None = None,
    as_json: bool = False,
) -> None:
    """Decide, write what is asked for, print the verdict; raises typer.Exit with the verdict's exit code."""
    decision, cut_by = solve_in_sight(lambda: decide(problem, capacity, strategy, limits=limits), limits)
    if output:
        write(decision.plan, output)
        if decision.placed is not Verdict.FITS:
            tell(f"{output}: the best plan found, which takes {format_bytes(decision.plan.arena_bytes)}")
    if core:
        _write_core(decision, core)
    show(
        as_json,
        lambda: decision_summary(decision, cut_by) | {"offsets": offsets(decision.plan)},
        lambda: decision_tables(decision, cut_by),
    )
    raise typer.Exit(EXIT_CODES[decision.verdict])


def _write_core(decision: Decision, path: Path) -> None:
    if decision.verdict is Verdict.DOES_NOT_FIT:
        write(find_core(decision.plan.problem, decision.bound, decision.capacity).problem, path)
    else:
        # A file of that name may be there from another run: nobody should take it for this one's.
        tell(f"{path}: not written, for no core was found: {decision.verdict}")
