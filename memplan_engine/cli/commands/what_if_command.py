"""`memplan what-if`: the plan after edits beside the original, and what would make it fit a capacity."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import (
    ALL_ROWS,
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
from memplan_engine.cli.output import check_targets, show, tell
from memplan_engine.cli.progress import solve_in_sight
from memplan_engine.cli.values import BY_NAME
from memplan_engine.errors import InputError
from memplan_engine.files import write
from memplan_engine.formats.memplan_json.edits_format import load_edits, write_edits
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation
from memplan_engine.problem import Problem
from memplan_engine.reporters.what_if_tables import what_if_summary, what_if_tables
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.units import parse_bytes
from memplan_engine.verdict import EXIT_CODES
from memplan_engine.what_if.apply import apply
from memplan_engine.what_if.edits import Edit, parse_edit
from memplan_engine.what_if.suggestions.suggest import DECIDING_SECONDS, DEFAULT_SECONDS, FitReport, fit_into

Repeated = list[str] | None


@app.command(name="what-if")
@with_preparation
def what_if(
    file: FILE,
    how: Preparation,
    edits: Annotated[Path | None, typer.Option(help="memplan/edits JSON, applied first.")] = None,
    split: Annotated[
        Repeated, typer.Option(help="Split it into NAME#1, NAME#2 … Repeatable, as those below.")
    ] = None,
    lifetime: Annotated[Repeated, typer.Option(help="Make it live in these steps only, half-open.")] = None,
    resize: Annotated[
        Repeated, typer.Option(help="Give it a new size, such as 512KiB, 500kB or bytes.")
    ] = None,
    align: Annotated[Repeated, typer.Option(help="Give it a new alignment.")] = None,
    pin: Annotated[Repeated, typer.Option(help="Fix it at this byte; NAME=free releases it.")] = None,
    drop: Annotated[Repeated, typer.Option(help="Remove it.")] = None,
    capacity: CAPACITY = None,
    budget: Annotated[str | None, typer.Option(hidden=True)] = None,
    strategy: STRATEGY = "auto",
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the changed plan (.json or .csv).")
    ] = None,
    save_edits: Annotated[Path | None, typer.Option(help="Write the edits as memplan/edits JSON.")] = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Edit buffers of FILE and replan; edits apply in the order of the options below."""
    options = {
        "split": split, "lifetime": lifetime, "resize": resize, "align": align, "pin": pin, "drop": drop,
    }  # fmt: skip
    chosen = (*(load_edits(edits) if edits else ()), *_edits(options))
    if budget is not None:
        tell("memplan: --budget is now called --capacity; the old name goes with version 1.0")
        capacity = budget if capacity is None else capacity
    limit = None if capacity is None else parse_bytes(capacity, "--capacity")
    problem = open_problem(file, how)
    check_targets((".json", ".csv"), file, output)
    check_targets((".json",), file, save_edits)
    changed = apply(problem, chosen)
    plans = [_planned(version, strategy, seconds, seed, threads) for version in (problem, changed)]
    fit = None if limit is None else _fit(plans[1], limit, seconds, seed, threads)
    best = fit.decision.plan if fit else plans[1]
    if best.arena_bytes >= plans[1].arena_bytes:
        best = plans[1]
    if output:
        write(best, output)
    if save_edits:
        write_edits(chosen, save_edits)
    show(
        as_json,
        lambda: what_if_summary(plans[0], best, chosen, fit),
        lambda: what_if_tables(plans[0], best, chosen, fit, all_rows),
    )
    if fit:
        raise typer.Exit(EXIT_CODES[fit.decision.verdict])


def _edits(options: dict[str, Repeated]) -> list[Edit]:
    """The edits that the options ask for; raises InputError naming the option."""
    edits = []
    for kind, values in options.items():
        option = f"--{kind}"
        for text in values or ():
            if kind == "drop":
                edits.append(parse_edit(kind, text, "", option))
                continue
            # From the right: names may have equals signs in them, values have none.
            name, sign, value = text.rpartition("=")
            if not sign or not name:
                raise InputError(option, "", repr(text[:40]), BY_NAME[kind])
            if kind in ("resize", "align") or (kind == "pin" and value != "free"):
                value = str(parse_bytes(value, f"{option} {name[:40]}"))
            edits.append(parse_edit(kind, name, value, f"{option} {name[:40]}"))
    return edits


def _planned(problem: Problem, strategy: str, seconds: float | None, seed: int, threads: int) -> Plan:
    limits = make_limits(strategy, seconds, seed, threads)
    return solve_in_sight(lambda: make_plan(problem, strategy, limits=limits), limits)[0]


def _fit(plan: Plan, limit: int, seconds: float | None, seed: int, threads: int) -> FitReport:
    limits = SolveLimits(seconds or DECIDING_SECONDS, seed, threads)
    search = partial(fit_into, plan, limit, limits=limits, seconds=seconds or DEFAULT_SECONDS)
    return solve_in_sight(search, limits)[0]
