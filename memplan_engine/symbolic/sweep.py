"""The arena as a function of one symbol: plain values for a chart or a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import PlanningOptions
from memplan_engine.planner import QUICK_SECONDS, make_plan
from memplan_engine.schedule import Schedule
from memplan_engine.scope import Scope
from memplan_engine.strategies.base import SolveLimits, Strategy
from memplan_engine.symbolic.partition import schema_of
from memplan_engine.symbolic.resolve import ImpossibleSizeError
from memplan_engine.symbolic.symbol_values import check_values, ends, steps_between, symbol_named
from memplan_engine.symbolic.symbolic_problem import symbolic_problem

MOST_POINTS = 60
POINTS = 40


@dataclass(frozen=True, slots=True)
class Sweep:
    """Bytes at each of `values` of `symbol`, the others at `others`.

    `bound`: the lower bound. `arena`: `strategy` planned anew at every value. `partition`: what the one
    partition schema decided at `hint` allocates, the same assignment for all values. `peak` is the largest
    sum of live bytes. `workspace` is what ops hold beside each of these arenas, by what the `scope` knows at
    all of the values: none where temporaries are known at the hints only. `skipped` values have sizes that
    are negative or not whole.
    """

    symbol: str
    hint: int
    others: tuple[tuple[str, int], ...]
    strategy: str
    values: tuple[int, ...]
    bound: tuple[int, ...]
    arena: tuple[int, ...]
    partition: tuple[int, ...]
    peak: tuple[int, ...]
    workspace: tuple[int, ...]
    scope: Scope
    skipped: tuple[int, ...] = ()


def sweep(
    graph: Graph,
    symbol: str,
    values: Sequence[int] | None = None,
    strategy: str | Strategy = "auto",
    *,
    at: Mapping[str, int] | None = None,
    points: int = POINTS,
    schedule: Schedule | None = None,
    **options: Unpack[PlanningOptions],
) -> Sweep:
    """Plan `graph` at `values` of `symbol`, or at `points` values over its range, evenly spaced by ratio and
    with the hint among them. `at` has values for the other symbols (their hints for the rest), and may have
    one for `symbol`, which then takes the place of its hint.

    Raises
    ------
    InputError: no such symbol, more than 60 values or none, values out of range, no possible sizes at any.
    PlanError: as `make_plan`.
    """
    known = symbol_named(graph, symbol)
    count = points if values is None else len(values)
    if not 2 - (values is not None) <= count <= MOST_POINTS:
        raise InputError(graph.name, f"values of {symbol!r}", f"{count} of them", f"2 to {MOST_POINTS}")
    base = check_values(graph.symbols, at, graph.name)
    chosen = sorted({*steps_between(*ends(known), points - 1), base[symbol]} if values is None else {*values})
    problem = symbolic_problem(graph, schedule, **options)
    schema = schema_of(graph, base, schedule, **options)
    columns: list[tuple[int, int, int, int, int, int]] = []
    scopes = set()
    skipped: dict[int, ImpossibleSizeError] = {}
    name = strategy if isinstance(strategy, str) else strategy.name
    for value in chosen:
        here = check_values(graph.symbols, {**base, symbol: value}, graph.name)
        try:
            plan = make_plan(problem.at(here), strategy, limits=SolveLimits(QUICK_SECONDS))
        except ImpossibleSizeError as error:
            skipped[value] = error
            continue
        scopes.add(plan.problem.scope)
        shared = schema.memory_bytes(here), schema.peak(here)
        columns.append((value, plan.bound.nbytes, plan.arena_bytes, *shared, plan.workspace_bytes))
    if not columns:
        raise next(iter(skipped.values()))
    kept, bound, arena, partition, peak, workspace = zip(*columns, strict=True)
    scope = scopes.pop()
    if scopes:
        scope, workspace = Scope.GRAPH, (0,) * len(kept)
    others = tuple((each, value) for each, value in base.items() if each != symbol)
    figures = (kept, bound, arena, partition, peak, workspace)
    return Sweep(symbol, base[symbol], others, name, *figures, scope, tuple(skipped))
