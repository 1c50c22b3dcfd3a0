"""Strategy + problem → replay: the strategy's own kernel runs once more, and notes what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from memplan_engine.errors import MemplanError, PlanError
from memplan_engine.graph import Graph
from memplan_engine.kernels.constructive import free_list, place
from memplan_engine.kernels.constructive.trace import (
    BUFFER,
    KIND,
    OTHER,
    OTHER_RESULT,
    RESULT,
    TAKEN,
    make_trace,
)
from memplan_engine.kernels.shared_objects.assign import lay_out
from memplan_engine.kernels.types import Flags
from memplan_engine.plan import Plan, naive_offsets
from memplan_engine.planner import adopt, as_problem
from memplan_engine.problem import FREE, Ints, Problem
from memplan_engine.replay import pseudo_code as code
from memplan_engine.replay.recorded import NO_END, frozen, read_holes, read_objects, record_search
from memplan_engine.replay.replay_values import NOBODY, STATES, CandidateState, Family, Holes, Objects
from memplan_engine.replay.steps import Replay
from memplan_engine.strategies import get_strategy, known_strategies
from memplan_engine.strategies.base import SolveLimits, Strategy, obstacle
from memplan_engine.strategies.constructive.linear_scan import LinearScan, Naive
from memplan_engine.strategies.constructive.order_fit import NO_LIMIT, OrderFit
from memplan_engine.strategies.constructive.orders import FitRule, Key, make_timeline
from memplan_engine.strategies.exact.exact_search import Exact
from memplan_engine.strategies.shared_objects.assignment import ObjectRule, SharedObjects
from memplan_engine.verify.validate import validate_plan

MOST_BUFFERS = 20_000
"""With more, nobody steps through, and the columns of a replay would be tens of megabytes."""

_Recorder = Callable[[Any, Problem, SolveLimits], Replay]
_KERNEL_FIT = {FitRule.FIRST: place.FIRST_FIT, FitRule.BEST: place.BEST_FIT, FitRule.TOP: place.TOP}
_FITS = {
    FitRule.FIRST: CandidateState.NOT_LOWEST,
    FitRule.BEST: CandidateState.NOT_TIGHTEST,
    FitRule.TOP: CandidateState.LEFT_EMPTY,
}
_FREE = {
    ObjectRule.SMALLEST: (CandidateState.WOULD_GROW, CandidateState.LARGER),
    ObjectRule.CLOSEST: (CandidateState.FARTHER, CandidateState.FARTHER),
    ObjectRule.LEAST_IDLE: (CandidateState.IDLER, CandidateState.IDLER),
    ObjectRule.FULLEST: (CandidateState.LESS_FULL, CandidateState.LESS_FULL),
}
"""What is said of a free object that was not taken: one smaller than the buffer, and one that is not."""


def make_replay(
    source: Graph | Problem,
    strategy: str | Strategy = "greedy_by_size",
    *,
    alignment: int | None = None,
    plan_inputs: bool = False,
    limits: SolveLimits | None = None,
) -> Replay:
    """Every decision that `strategy` takes for `source`, with what it looked at and why.

    All parameters are as in `make_plan`. For `exact` the steps are the nodes of its search tree.

    Raises
    ------
    MemplanError: no such strategy, or one that cannot be replayed; the message has those that can.
    PlanError: a problem that the strategy cannot place, fixed offsets that collide, more buffers than can be
    replayed (MOST_BUFFERS; for `exact` see `recorded.record_search`), or `limits` that end it first.
    """
    strategy = get_strategy(strategy) if isinstance(strategy, str) else strategy
    record = recorder_of(strategy)
    if record is None:
        able = ", ".join(replayable())
        raise MemplanError(f"{strategy.name} cannot be replayed step by step; these can: {able}")
    problem = as_problem(source, alignment=alignment, plan_inputs=plan_inputs)
    if len(problem) > MOST_BUFFERS:
        raise PlanError(
            f"{problem.name}: {len(problem):,} buffers, and a replay of {strategy.name} "
            f"shows {MOST_BUFFERS:,} at most"
        )
    reason = obstacle(strategy, problem)
    if reason:
        raise PlanError(f"{problem.name}: {strategy.name} cannot place it: {reason}")
    limits = limits or SolveLimits()
    with limits.running():
        replay = record(strategy, problem, limits)
        _check(limits, problem, strategy)
    report = validate_plan(replay.plan, replay=False)
    if not report.valid:
        raise PlanError(f"{problem.name}: {report.violations[0].message}")
    return replay


def replayable() -> tuple[str, ...]:
    """The names of the known strategies that can be replayed, in their order."""
    return tuple(name for name, strategy in known_strategies().items() if recorder_of(strategy))


def recorder_of(strategy: Strategy) -> _Recorder | None:
    """What records `strategy`; None where nothing does, as for a subclass that places in a way of its own."""
    if isinstance(strategy, OrderFit):
        return record_order_fit if type(strategy).place is OrderFit.place else None
    if isinstance(strategy, SharedObjects):
        return record_shared_objects if type(strategy) is SharedObjects and strategy.rule else None
    others: dict[type[Strategy], _Recorder] = {
        LinearScan: record_linear_scan,
        Naive: record_no_reuse,
        Exact: record_search,
    }
    return others.get(type(strategy))


def record_order_fit(strategy: OrderFit, problem: Problem, limits: SolveLimits) -> Replay:
    """Always by `place_in_order`: the quicker kernels for large or simple problems give the same offsets."""
    timeline, fit = make_timeline(problem), strategy.fit
    pieces, sections = timeline.pieces, timeline.sections
    order = strategy.order(timeline)
    is_fixed = problem.fixed[order] != FREE
    # Copies: numba compiles once for each mixture of read-only and writable arrays.
    order_, first, start, end, low, high, size, alignment, fixed = (
        np.array(column)
        for column in (
            np.concatenate([order[is_fixed], order[~is_fixed]]),
            *(pieces.first, sections.first, sections.last, pieces.low, pieces.high),
            *(problem.size, problem.alignment, problem.fixed),
        )
    )
    trace, rule, never = make_trace(len(problem)), _KERNEL_FIT[fit], np.zeros(1, dtype=np.bool_)
    columns = (order_, first, start, end, low, high, size, alignment, fixed)
    offsets: Ints = place.place_in_order(*columns, rule, timeline.width, NO_LIMIT, never, trace)
    above = CandidateState.NOT_LOWEST if fit is FitRule.FIRST else CandidateState.NOT_NEEDED
    holes = read_holes(trace, problem.size, _FITS[fit], above)
    steps = trace.steps[: trace.begun[0]]
    line = np.select([steps[:, KIND] == 1, _without_end(holes)], [code.FIXED, code.ABOVE], code.IN_HOLE)
    return _replay(
        adopt(problem, offsets, strategy.name),
        Family.ORDER_FIT,
        steps[:, BUFFER],
        steps[:, RESULT],
        line=line,
        code=code.order_fit(strategy.by, fit),
        keys=strategy.by.keys(timeline) if strategy.by else (),
        fit=fit,
        holes=holes,
    )


def record_no_reuse(strategy: Naive, problem: Problem, limits: SolveLimits) -> Replay:
    """There is nothing to look at: the offsets are the record."""
    is_fixed = problem.fixed != FREE
    offsets = naive_offsets(problem)
    buffer = np.concatenate([np.flatnonzero(is_fixed), np.flatnonzero(~is_fixed)])
    return _replay(
        adopt(problem, offsets, strategy.name),
        Family.NO_REUSE,
        buffer,
        offsets[buffer],
        line=np.where(is_fixed[buffer], code.STACK_FIXED, code.STACKED),
        code=code.NO_REUSE,
        keys=strategy.by.keys(make_timeline(problem)),
    )


def record_linear_scan(strategy: LinearScan, problem: Problem, limits: SolveLimits) -> Replay:
    """Free ranges instead of holes; buffers that move."""
    fixed, free = np.flatnonzero(problem.fixed != FREE), np.flatnonzero(problem.fixed == FREE)
    trace = make_trace(len(free))
    offsets = strategy.scan(problem, limits, trace)
    rounded = problem.size + -problem.size % problem.alignment
    holes = read_holes(trace, rounded[free], _FITS[strategy.fit], CandidateState.NOT_NEEDED)
    steps = trace.steps[: trace.begun[0]]
    lines = np.array([code.SCAN_EMPTY, code.SCAN_RANGE, code.SCAN_EXCHANGE, code.SCAN_END])
    none = np.zeros(len(fixed), dtype=np.int64)
    holes = replace(
        holes,
        first=frozen(np.concatenate([none, holes.first])),
        more=frozen(np.concatenate([none, holes.more])),
        possible=frozen(np.concatenate([none, holes.possible])),
    )
    # What has no bytes never moves.
    own = free[steps[:, BUFFER]]
    results = np.where(steps[:, KIND] == free_list.EMPTY, offsets[own], steps[:, RESULT])
    mover = np.where(steps[:, OTHER] == NOBODY, NOBODY, free[steps[:, OTHER]] if len(free) else NOBODY)
    return _replay(
        adopt(problem, offsets, strategy.name),
        Family.LINEAR_SCAN,
        np.concatenate([fixed, own]),
        np.concatenate([problem.fixed[fixed], results]),
        line=np.concatenate([none + code.SCAN_FIXED, lines[steps[:, KIND]]]),
        code=code.linear_scan(strategy.fit),
        keys=strategy.by.keys(make_timeline(problem)),
        fit=strategy.fit,
        moved=(np.concatenate([none + NOBODY, mover]), np.concatenate([none, steps[:, OTHER_RESULT]])),
        holes=holes,
    )


def record_shared_objects(strategy: SharedObjects, problem: Problem, limits: SolveLimits) -> Replay:
    """Objects instead of holes. Buffers lie where their objects lie in the end."""
    assert strategy.by
    assert strategy.rule
    trace = make_trace(len(problem))
    whole = replace(problem, gaps={})
    objects = strategy.assign(whole, limits, trace)
    _check(limits, problem, strategy)  # what has no object cannot be laid out
    size, alignment = np.array(problem.size), np.array(problem.alignment)
    offsets = lay_out(np.argsort(objects, kind="stable"), objects, size, alignment)
    smaller, enough = _FREE[strategy.rule]
    steps = trace.steps[: trace.begun[0]]
    buffer = steps[:, BUFFER]
    return _replay(
        adopt(problem, offsets, strategy.name, objects=objects),
        Family.SHARED_OBJECTS,
        buffer,
        offsets[buffer],
        line=np.where(steps[:, TAKEN] >= 0, code.JOINED, code.NEW_OBJECT),
        code=code.shared_objects(strategy.by, strategy.rule),
        keys=strategy.by.keys(make_timeline(whole)),
        arena=_objects_so_far(buffer, objects, size, alignment, limits),
        shared=read_objects(trace, problem.size, smaller, enough),
        rule=strategy.rule,
    )


def _without_end(holes: Holes) -> Flags:
    """For each step whether it took the hole above everything."""
    topmost = np.flatnonzero((holes.state == STATES.index(CandidateState.TAKEN)) & (holes.high == NO_END))
    above = np.zeros(len(holes.more), dtype=np.bool_)
    above[np.searchsorted(holes.first, topmost, side="right") - 1] = True
    return above


def _check(limits: SolveLimits, problem: Problem, strategy: Strategy) -> None:
    """Raise PlanError where `limits` have ended what is recorded."""
    if limits.stopped:
        within = f" within {limits.seconds:g} s" if limits.seconds is not None else ""
        raise PlanError(f"{problem.name}: {strategy.name} was not recorded to its end{within}")


def _objects_so_far(buffer: Ints, objects: Ints, size: Ints, alignment: Ints, limits: SolveLimits) -> Ints:
    """The arena after each step: what the objects that there are by then need, one behind another. Less of it
    where `limits` end it."""
    arena = np.zeros(len(buffer), dtype=np.int64)
    by_object = np.argsort(objects, kind="stable")
    placed = np.zeros(len(objects), dtype=np.bool_)
    for step, each in enumerate(buffer.tolist()):
        if limits.stopped:
            break
        placed[each] = True
        so_far = by_object[placed[by_object]]
        offsets = lay_out(so_far, objects, size, alignment)
        arena[step] = (offsets[so_far] + size[so_far]).max()
    return arena


def _replay(
    plan: Plan,
    family: Family,
    buffer: Ints,
    offset: Ints,
    *,
    line: Ints,
    code: tuple[str, ...],
    keys: tuple[Key, ...],
    fit: FitRule | None = None,
    moved: tuple[Ints, Ints] | None = None,
    arena: Ints | None = None,
    holes: Holes | None = None,
    shared: Objects | None = None,
    rule: ObjectRule | None = None,
) -> Replay:
    """The columns that follow from the others, and all of them frozen."""
    size = plan.problem.size
    mover, moved_to = moved or (np.full(len(buffer), NOBODY), np.zeros(len(buffer), dtype=np.int64))
    if arena is None:
        ends = np.maximum(offset + size[buffer], np.where(mover == NOBODY, 0, moved_to + size[mover]))
        arena = np.maximum.accumulate(ends)
    return Replay(
        plan,
        family,
        fit,
        buffer=frozen(buffer),
        offset=frozen(offset),
        arena=frozen(arena),
        bytes_left=frozen(size.sum() - np.cumsum(size[buffer])),
        moved=frozen(mover),
        moved_to=frozen(moved_to),
        line=frozen(line),
        code=code,
        keys=keys,
        holes=holes,
        shared=shared,
        rule=rule,
    )
