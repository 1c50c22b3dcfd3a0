"""Plans at many values of one symbol: the arena as a function of it, and plan tables for a few buckets.

The plan of a bucket is made at its largest value and used for all values below it, down to the bucket before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from memplan_engine.bounds import lower_bound
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph
from memplan_engine.lifetimes import PlanningOptions
from memplan_engine.plan import Plan
from memplan_engine.planner import QUICK_SECONDS, make_plan
from memplan_engine.schedule import Schedule
from memplan_engine.scope import Scope
from memplan_engine.strategies.base import SolveLimits, Strategy
from memplan_engine.symbolic.partition import schema_of
from memplan_engine.symbolic.revalidate import RangeReport, revalidate
from memplan_engine.symbolic.symbol_values import check_values, ends, steps_between, symbol_named
from memplan_engine.symbolic.symbolic_problem import ImpossibleSizeError, SymbolicProblem, symbolic_problem

MOST_POINTS = 60
POINTS = 40
MOST_BUCKETS = 64
TRIED = 33
"""Values of a bucket at which its waste is worked out, at most."""
OFFSET_BYTES = 8


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
    limits: SolveLimits | None = None,
    **options: Unpack[PlanningOptions],
) -> Sweep:
    """Plan `graph` at `values` of `symbol`, or at `points` values over its range, evenly spaced by ratio and
    with the hint among them. `at` has values for the other symbols (their hints for the rest), and may have
    one for `symbol`, which then takes the place of its hint. Each plan has all seconds and nodes of `limits`,
    0.25 s by default.

    Raises
    ------
    InputError: no such symbol, more than 60 values or none, values out of range, no possible sizes at any.
    PlanError: as `make_plan`.
    """
    swept = symbol_named(graph, symbol)
    symbol = swept.name
    count = points if values is None else len(values)
    if not 2 - (values is not None) <= count <= MOST_POINTS:
        raise InputError(graph.name, f"values of {symbol!r}", f"{count} of them", f"2 to {MOST_POINTS}")
    base = check_values(graph.symbols, at, graph.name)
    limits = limits or SolveLimits(QUICK_SECONDS)
    sizes = sorted({*steps_between(*ends(swept), points - 1), base[symbol]} if values is None else {*values})
    problem = symbolic_problem(graph, schedule, **options)
    schema = schema_of(graph, base, schedule, **options)
    columns: list[tuple[int, int, int, int, int, int]] = []
    scopes = set()
    skipped: dict[int, ImpossibleSizeError] = {}
    name = strategy if isinstance(strategy, str) else strategy.name
    for value in sizes:
        here = check_values(graph.symbols, {**base, symbol: value}, graph.name)
        try:
            plan = make_plan(problem.at(here), strategy, limits=limits.again(reports=False))
        except ImpossibleSizeError as error:
            skipped[value] = error
            continue
        scopes.add(plan.problem.scope)
        shared = schema.memory_bytes(here), schema.peak(here)
        columns.append((value, plan.bound.nbytes, plan.arena_bytes, *shared, plan.workspace_bytes))
    if not columns:
        raise next(iter(skipped.values()))
    planned, bound, arena, partition, peak, workspace = zip(*columns, strict=True)
    scope = scopes.pop()
    if scopes:
        scope, workspace = Scope.GRAPH, (0,) * len(planned)
    others = tuple((other, value) for other, value in base.items() if other != symbol)
    figures = (planned, bound, arena, partition, peak, workspace)
    return Sweep(symbol, base[symbol], others, name, *figures, scope, tuple(skipped))


@dataclass(frozen=True, slots=True)
class Bucket:
    """The plan for values `low` … `high` of the symbol, made at `high`; `report` says whether its offsets
    hold for all of them. `arena_bytes` is what it needs for each of them. Waste is arena − lower bound, in
    bytes: the worst of the values tried, at `worst_at`, and the mean over them, evenly spaced by ratio. The
    workspace of the plan, what ops hold beside the arena, is that at `high`."""

    low: int
    high: int
    plan: Plan
    report: RangeReport
    arena_bytes: int
    worst_waste: int
    worst_at: int
    mean_waste: float


@dataclass(frozen=True, slots=True)
class BucketTable:
    """All buckets of `symbol`, with the values of the other symbols, which are the same for all."""

    symbol: str
    others: tuple[tuple[str, int], ...]
    buckets: tuple[Bucket, ...]

    @property
    def arena_bytes(self) -> int:
        """One arena that serves whichever bucket is used: the largest."""
        return max(bucket.arena_bytes for bucket in self.buckets)

    @property
    def separate_bytes(self) -> int:
        """An arena for each bucket, all kept: the sum."""
        return sum(bucket.arena_bytes for bucket in self.buckets)

    @property
    def table_bytes(self) -> int:
        """The plans themselves: an offset of 8 bytes for each buffer of each bucket."""
        return sum(OFFSET_BYTES * len(bucket.plan.problem) for bucket in self.buckets)

    def bucket(self, value: int) -> Bucket:
        """The bucket whose plan is used at `value` of the symbol; raises InputError for one outside them."""
        for bucket in self.buckets:
            if bucket.low <= value <= bucket.high:
                return bucket
        expected = f"{self.buckets[0].low} to {self.buckets[-1].high}"
        raise InputError("buckets", f"symbol {self.symbol!r}", str(value), expected)


def plan_buckets(
    graph: Graph,
    symbol: str,
    highs: Sequence[int],
    strategy: str | Strategy = "auto",
    *,
    values: Mapping[str, int] | None = None,
    schedule: Schedule | None = None,
    limits: SolveLimits | None = None,
    **options: Unpack[PlanningOptions],
) -> BucketTable:
    """Plan `graph` once for each of `highs`, the buckets' largest values of `symbol`, with the other symbols
    at `values` or their hints. The first bucket begins at the symbol's smallest value. Each plan has all
    seconds and nodes of `limits`, 0.25 s by default.

    Raises
    ------
    InputError: no such symbol; no buckets, too many, a value out of range or twice; values as `check_values`.
    PlanError: as `make_plan`.
    """
    bucketed = symbol_named(graph, symbol)
    symbol, low, buckets = bucketed.name, bucketed.low, []
    values = {name: value for name, value in (values or {}).items() if name not in (symbol, bucketed.called)}
    ordered = _ordered(graph.name, symbol, highs)
    problem = symbolic_problem(graph, schedule, **options)
    limits = limits or SolveLimits(QUICK_SECONDS)
    for high in ordered:
        at = check_values(graph.symbols, {**values, symbol: high}, graph.name)
        buckets.append(_bucket(problem, symbol, low, at, strategy, limits.again(reports=False)))
        low = high + 1
    others = tuple((name, value) for name, value in at.items() if name != symbol)
    return BucketTable(symbol, others, tuple(buckets))


def _ordered(source: str, symbol: str, highs: Sequence[int]) -> list[int]:
    place = f"buckets of {symbol!r}"
    if not 1 <= len(highs) <= MOST_BUCKETS:
        raise InputError(source, place, f"{len(highs)} values", f"1 to {MOST_BUCKETS}")
    twice = [value for value in highs if list(highs).count(value) > 1]
    if twice:
        raise InputError(source, place, f"{twice[0]} twice", "each value once")
    return sorted(highs)


def _bucket(
    problem: SymbolicProblem,
    symbol: str,
    low: int,
    at: Mapping[str, int],
    strategy: str | Strategy,
    limits: SolveLimits,
) -> Bucket:
    high = at[symbol]
    plan = make_plan(problem.at(at), strategy, limits=limits)
    report = _report(plan, symbol, low)
    # Where a size falls as the symbol grows, a value inside may need more than the largest one.
    arena = max(plan.arena_bytes, report.arena_bytes)
    wastes: dict[int, int] = {}
    for value in steps_between(low, high, TRIED):
        try:
            inside = problem.at({**at, symbol: value}, origin=False)
        except ImpossibleSizeError:
            continue
        wastes[value] = arena - lower_bound(inside).nbytes
    worst = max(wastes, key=lambda value: (wastes[value], -value))
    mean = sum(wastes.values()) / len(wastes)
    return Bucket(low, high, plan, report, arena, wastes[worst], worst, mean)


def _report(plan: Plan, symbol: str, low: int) -> RangeReport:
    """Whether the offsets hold from `low` to where the plan was made, the other symbols standing still."""
    origin = plan.problem.origin
    assert origin is not None
    at = check_values(origin.graph.symbols)
    narrow = tuple(
        replace(entry, low=low if entry.name == symbol else at[entry.name], high=at[entry.name])
        for entry in origin.graph.symbols
    )
    graph = replace(origin.graph, symbols=narrow)
    return revalidate(replace(plan, problem=replace(plan.problem, origin=replace(origin, graph=graph))))
