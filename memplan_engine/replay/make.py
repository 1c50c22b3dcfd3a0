"""Strategy + problem → replay: the strategy's own kernel runs once more, and notes what it does."""

from __future__ import annotations

from memplan_engine.errors import MemplanError, PlanError
from memplan_engine.graph import Graph
from memplan_engine.planner import as_problem
from memplan_engine.problem import Problem
from memplan_engine.replay import recording
from memplan_engine.replay.searching import record_search
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import Strategy, obstacle
from memplan_engine.strategies.constructive.linear_scan import LinearScan
from memplan_engine.strategies.constructive.naive import Naive
from memplan_engine.strategies.constructive.order_fit import OrderFit
from memplan_engine.strategies.exact.exact_search import Exact
from memplan_engine.strategies.shared_objects.assignment import SharedObjects
from memplan_engine.verify.validate import validate_plan

MOST_BUFFERS = 20_000
"""With more, nobody steps through, and the columns of a replay would be tens of megabytes."""


def make_replay(
    source: Graph | Problem,
    strategy: str | Strategy = "greedy_by_size",
    *,
    alignment: int | None = None,
    plan_inputs: bool = False,
) -> Replay:
    """Every decision that `strategy` takes for `source`, with what it looked at and why.

    All parameters are as in `make_plan`. For `exact` the steps are the nodes of its search tree.

    Raises
    ------
    MemplanError: no such strategy, or one that cannot be replayed; the message has those that can.
    PlanError: a problem that the strategy cannot place, fixed offsets that collide, or more buffers than can
    be replayed (MOST_BUFFERS; for `exact` see `searching.record_search`).
    """
    chosen = get_strategy(strategy) if isinstance(strategy, str) else strategy
    if not can_replay(chosen):
        able = ", ".join(replayable())
        raise MemplanError(f"{chosen.name} cannot be replayed step by step; these can: {able}")
    problem = as_problem(source, alignment=alignment, plan_inputs=plan_inputs)
    if len(problem) > MOST_BUFFERS:
        raise PlanError(
            f"{problem.name}: {len(problem):,} buffers, and a replay of {chosen.name} "
            f"shows {MOST_BUFFERS:,} at most"
        )
    reason = obstacle(chosen, problem)
    if reason:
        raise PlanError(f"{problem.name}: {chosen.name} cannot place it: {reason}")
    replay = _record(chosen, problem)
    report = validate_plan(replay.plan, replay=False)
    if not report.valid:
        raise PlanError(f"{problem.name}: {report.violations[0].message}")
    return replay


def can_replay(strategy: Strategy) -> bool:
    """Whether `strategy` takes decisions that can be told one by one."""
    if isinstance(strategy, OrderFit):
        return type(strategy).place is OrderFit.place
    if isinstance(strategy, SharedObjects):
        return type(strategy) is SharedObjects and strategy.rule is not None
    return type(strategy) in (LinearScan, Naive, Exact)


def replayable() -> tuple[str, ...]:
    """The names of the known strategies that can be replayed, in their order."""
    return tuple(name for name, known in known_strategies().items() if can_replay(known))


def _record(strategy: Strategy, problem: Problem) -> Replay:
    if isinstance(strategy, OrderFit):
        return recording.record_order_fit(strategy, problem)
    if isinstance(strategy, LinearScan):
        return recording.record_linear_scan(strategy, problem)
    if isinstance(strategy, Exact):
        return record_search(strategy, problem)
    if isinstance(strategy, Naive):
        return recording.record_no_reuse(strategy, problem)
    assert isinstance(strategy, SharedObjects)
    return recording.record_shared_objects(strategy, problem)
