"""Problem + strategy → plan: the one place where plans are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import lcm

import numpy as np

from memplan_engine.bounds import better, lower_bound
from memplan_engine.errors import InputError, PlanError
from memplan_engine.graph import Graph
from memplan_engine.kernels import is_compiled
from memplan_engine.kernels.constructive.gap_tree import effort
from memplan_engine.kernels.jit import compiled_only, interprets
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, to_problem
from memplan_engine.plan import Parameter, Plan, make_objects, make_offsets
from memplan_engine.problem import FREE, Ints, Problem, make_problem, select
from memplan_engine.profile import load_of
from memplan_engine.strategies import BUILT_IN, built_in, get_strategy, known_strategies
from memplan_engine.strategies.base import (
    Placement,
    SolveLimits,
    Strategy,
    is_anytime,
    limits_were_budget,
    obstacle,
    parameters_of,
)
from memplan_engine.strategies.constructive.order_fit import (
    place_by,
    place_by_portfolio,
    place_in_slots,
    place_quickly,
)
from memplan_engine.strategies.constructive.orders import BY_SIZE, BY_START, FitRule, make_timeline
from memplan_engine.verify.validate import Rule, validate_plan

SEARCH_KERNELS = ("branch.branch", "repair.repair", "contact.place_by_contact", "skyline.place_by_skyline")
"""What takes longest to compile of anytime strategies."""
SEARCHES = ("auto", "exact", "search")
"""Strategies that use them; another anytime strategy waits for none of them."""
PORTFOLIO = ("greedy_by_size", "greedy_by_breadth")
"""Strategies that use all kernels of orders × fits between them."""
TREE_KERNEL = "tree_place.place_in_tree"
DEFAULT_SECONDS = 10.0
"""Their limit where nobody gives one."""
SHORT_SECONDS = 3.0
"""Below this limit their kernels are loaded before the clock starts."""
TRIED_SECONDS = 1.0
"""Seconds spent on a plan without a search before a search's kernels are compiled. No plan depends on it."""
CHECKING_SECONDS = 1.5e-6
"""What checking a plan takes for each buffer; it is within the limit. A million take 1.1 s of CPU."""
MOST_RESERVED = 0.25
"""The share of a limit that is kept for checking at most: a short one is for finding a plan at all."""
QUICK_SECONDS = 0.25
"""Their limit where a plan is one of many."""


@limits_were_budget
def make_plan(
    source: Graph | Problem,
    strategy: str | Strategy = "auto",
    *,
    alignment: int | None = None,
    plan_inputs: bool = False,
    limits: SolveLimits | None = None,
) -> Plan:
    """Place every buffer and check the result with the independent validator.

    Parameters
    ----------
    source: a problem, or a graph, of which the problem is made first.
    strategy: a name (`known_strategies()` has them) or a strategy of one's own.
    alignment: bytes; for a graph 64 unless given; for a problem what its buffers say unless given.
    plan_inputs: graphs only: give the graph's inputs a place in the arena, too.
    limits: limits in seconds and nodes, seed, cancel flag and progress. By default an anytime strategy
        has 10 s, any other no limit.

    Raises
    ------
    MemplanError: no such strategy. PlanError: fixed offsets that collide, or a strategy that cannot place
    the problem, or whose placement is not valid (a defect of the strategy, named).
    """
    problem = as_problem(source, alignment=alignment, plan_inputs=plan_inputs)
    strategy = get_strategy(strategy) if isinstance(strategy, str) else strategy
    limits = limits or SolveLimits(DEFAULT_SECONDS if is_anytime(strategy) else None)
    _check_fixed(problem)
    _warm_up(strategy, problem, limits.seconds is not None and limits.seconds < SHORT_SECONDS)
    if limits.seconds is not None:
        limits.reserve = min(CHECKING_SECONDS * len(problem), MOST_RESERVED * limits.seconds)
    with limits.running():
        placement = strategy.place(problem, limits)
        seconds = limits.elapsed
    parameters: tuple[tuple[str, Parameter], ...] = parameters_of(strategy)
    if placement.found_by:
        parameters = (*parameters, ("found_by", placement.found_by))
    offsets, objects = make_offsets(placement.offsets), make_objects(placement.objects)
    plan = Plan(
        problem,
        offsets,
        strategy.name,
        better(lower_bound(problem), placement.bound),
        parameters,
        seconds,
        objects,
        nodes=limits.visited,
        threads=placement.threads,
    )
    # A placement that meets its bound needs nothing more, whatever the clock says.
    plan = replace(plan, cut_short=limits.stopped and not plan.optimal)
    # Replaying a core may take seconds past the limit: `validate` does it when it is asked.
    report = validate_plan(plan, replay=False)
    if not report.valid:
        raise PlanError(
            f"{problem.name}: {strategy.name} gave an invalid plan: {report.violations[0].message}"
        )
    return plan


def compare(
    source: Graph | Problem,
    names: Iterable[str] | None = None,
    *,
    alignment: int | None = None,
    plan_inputs: bool = False,
    seconds: float = DEFAULT_SECONDS,
    limits: SolveLimits | None = None,
) -> list[Plan]:
    """A plan of the same problem by each strategy of `names`, in that order; by default all that can.

    `seconds` is the limit of each anytime strategy: of auto, exact and search. `limits` replace it; each
    strategy has all of their seconds and nodes.

    Raises
    ------
    MemplanError: no such strategy. PlanError: one that is named cannot place the problem.
    """
    problem = as_problem(source, alignment=alignment, plan_inputs=plan_inputs)
    names = strategies_for(problem) if names is None else names
    strategies = [get_strategy(name) for name in names]
    limits = limits or SolveLimits(seconds)
    return [
        make_plan(problem, strategy, limits=limits.again() if is_anytime(strategy) else None)
        for strategy in strategies
    ]


def strategies_for(problem: Problem) -> tuple[str, ...]:
    """The names of the known strategies that can place `problem`, in their order.

    Shared objects, for one, have no place for buffers with fixed offsets.
    """
    return tuple(name for name, strategy in known_strategies().items() if not obstacle(strategy, problem))


def as_problem(
    source: Graph | Problem, *, alignment: int | None = None, plan_inputs: bool = False
) -> Problem:
    """The problem behind `source`.

    For a problem, `alignment` (bytes) makes every offset a multiple of it as well as of what each buffer
    asks for; for a graph it is the default of all storages that ask for nothing.
    """
    if isinstance(source, Graph):
        alignment = DEFAULT_ALIGNMENT if alignment is None else alignment
        return to_problem(source, alignment=alignment, plan_inputs=plan_inputs)
    if alignment is None:
        return source
    if alignment < 1:
        raise InputError(source.name, "alignment", str(alignment), "1 or more bytes")
    # Through Python's integers: a product that passes 2^63 is then an error and not another number.
    alignments, rows = np.unique(source.alignment, return_inverse=True)
    return make_problem(
        source.start,
        source.end,
        source.size,
        names=source.names,
        alignment=np.array([lcm(value, alignment) for value in alignments.tolist()])[rows]
        if len(source)
        else 1,
        fixed=source.fixed,
        gaps=source.gaps,
        steps=source.steps,
        name=source.name,
        origin=source.origin,
        callers=source.callers,
        ids=source.ids,
        scope=source.scope,
        basis=source.basis,
    )


def adopt(
    problem: Problem,
    offsets: Ints,
    strategy: str = "imported",
    seconds: float = 0.0,
    objects: Ints | None = None,
) -> Plan:
    """Somebody else's placement as a plan, valid or not: `validate_plan` says which."""
    bound = lower_bound(problem)
    return Plan(problem, make_offsets(offsets), strategy, bound, (), seconds, make_objects(objects))


def _warm_up(strategy: Strategy, problem: Problem, short: bool) -> None:
    """Have the kernels compiled or loaded before the clock starts: seconds and limits are the strategy's.

    Compiling those of a search takes half a minute, which a problem that needs none is spared. Loading them
    takes half a second, which only a `short` limit would feel: else they wait until they are needed. A small
    problem is placed by kernels that are interpreted.
    """
    if strategy.name not in BUILT_IN or (is_anytime(strategy) and strategy.name not in SEARCHES):
        return
    if not is_anytime(strategy):
        _warm_for(problem, strategy.name)
    elif is_compiled(*SEARCH_KERNELS):
        # The portfolio stops at the bound, before it has used all its kernels.
        _warm_for(problem, *PORTFOLIO)
        if short:
            _warm_search()
    elif strategy.name != "auto" or not _settled_at_once(problem, getattr(strategy, "capacity", None) or 0):
        _warm(*PORTFOLIO)
        _warm_search()
    if not is_compiled(TREE_KERNEL) and make_timeline(problem).cell != effort.RUNS:
        use_tree_kernel()


def _warm_for(problem: Problem, *names: str) -> bool:
    """Have the kernels of the strategies `names` ready, unless they are interpreted for `problem`: their
    arrays hold two entries at most for each piece, for its begin and its end. Whether they are ready."""
    if interprets(2 * len(load_of(problem).pieces.start)):
        return False
    _warm(*names)
    return True


@cache
def _warm(*names: str) -> None:
    easy = make_problem([0, 1, 3], [2, 3, 4], [1, 3, 3], alignment=2)
    with compiled_only():
        for name in names:
            strategy = built_in(name)
            strategy.place(hard_problem() if is_anytime(strategy) else easy, SolveLimits())


def _warm_search() -> None:
    _warm("exact", "search")
    use_rare_kernels()


def _settled_at_once(problem: Problem, capacity: int) -> bool:
    """Whether some order × fit soon meets the bound or the `capacity` (bytes), so that nobody searches."""
    target = max(lower_bound(problem).nbytes, capacity)
    limits = SolveLimits(TRIED_SECONDS)
    with limits.running():
        quick = place_quickly(problem, limits, False)
    if quick.arena_bytes(problem) <= target:
        return True
    compiled = _warm_for(problem, *PORTFOLIO)
    meets, cut_short = _try_portfolio(problem, target, quick)
    if cut_short and not meets and not compiled:
        _warm(*PORTFOLIO)
        meets, _ = _try_portfolio(problem, target, quick)
    elif meets:
        # The strategy does the same once more.
        _warm_for(problem, *PORTFOLIO)
    return meets


def _try_portfolio(problem: Problem, target: int, quick: Placement) -> tuple[bool, bool]:
    """Whether the portfolio meets `target` bytes, and whether its time was up."""
    limits = SolveLimits(TRIED_SECONDS)
    with limits.running():
        placed = place_by_portfolio(problem, limits, target, quick)
    return placed.arena_bytes(problem) <= target, limits.stopped


@cache
def use_rare_kernels() -> None:
    """Those that problems as small as `hard_problem` are packed without."""
    from memplan_engine.strategies.search.urgency_fit import Skylines, placements

    timeline = make_timeline(hard_problem())
    with compiled_only():
        place_in_slots(timeline.problem, BY_START(timeline))
        next(placements(timeline, 1, SolveLimits()))
        Skylines(timeline, 1).next(SolveLimits())


@cache
def use_tree_kernel() -> None:
    """That of orders × fits for many buffers that live long."""
    timeline = replace(make_timeline(hard_problem()), cell=1)
    with compiled_only():
        place_by(timeline, BY_SIZE(timeline), FitRule.BEST, SolveLimits())


def hard_problem() -> Problem:
    """Seven buffers that no order × fit packs tightly: they need all the kernels of a search."""
    return make_problem([4, 4, 4, 1, 5, 2, 1], [8, 5, 7, 5, 9, 5, 4], [1, 4, 3, 3, 6, 2, 6])


def _check_fixed(problem: Problem) -> None:
    """Raise PlanError naming both buffers when two fixed offsets collide."""
    rows = np.flatnonzero(problem.fixed != FREE)
    if len(rows) < 2:
        return
    fixed = select(problem, rows)
    for violation in validate_plan(adopt(fixed, fixed.fixed)).violations:
        if violation.rule is Rule.OVERLAP:
            raise PlanError(f"{problem.name}: fixed offsets collide: {violation.message}")
