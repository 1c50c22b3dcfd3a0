"""Does a graph fit into a capacity, and by which rewrites? Stages, cheapest first, until it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.errors import InputError
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.chunk_stage import in_pieces
from memplan_engine.fitting.fitted import (
    AT_ANY_SIZE,
    CHOICES,
    LOWERING,
    Fitted,
    RandomOps,
    Stage,
    StageName,
    state_bytes_of,
)
from memplan_engine.fitting.offload_stage import Offloading
from memplan_engine.fitting.plan_again import PlanOf, plans_again
from memplan_engine.fitting.recompute_stage import Curve, CurvePoint, Recomputing
from memplan_engine.graph import Graph
from memplan_engine.op_kinds.ordered import drawing_ops
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.rewrites.early_updates import free_gradients, gradient_storages, gradients
from memplan_engine.rewrites.held_gradients import HeldBy, HeldGradients, held_gradients
from memplan_engine.rewrites.order.checked import check_order, checked_reorder
from memplan_engine.rewrites.order.order_search import Tell as OrderTell
from memplan_engine.schedule import Schedule, in_order_of
from memplan_engine.strategies.base import SolveLimits

STAGE_SECONDS = 10.0
"""Of each search of a stage, for the order and for the plan, where no limit is given."""
Tell = Callable[[str], None]
"""Hears of each stage as it begins."""
HearPoint = Callable[[CurvePoint], None]
Watch = Callable[["Stage"], None]
"""Hears of each stage as it is there."""
HearHeld = Callable[[tuple[HeldGradients, ...]], None]
"""Hears what holds the gradients of a training step, before the first stage begins."""


def fit_graph(
    graph: Graph,
    capacity: int | None = None,
    only: Sequence[str] = LOWERING,
    *,
    how: Preparation | None = None,
    limits: SolveLimits | None = None,
    schedule: Schedule | None = None,
    times: OpTimes | None = None,
    random: str = RandomOps.KEEP,
    tell: Tell = lambda part: None,
    watch: Watch = lambda stage: None,
    on_order: OrderTell | None = None,
    on_gradients: HearHeld = lambda held: None,
    on_curve: HearPoint = lambda point: None,
) -> Fitted:
    """Plan `graph`, and rewrite it in stages, cheapest first, until its arena fits into `capacity` bytes
    beside its state; without a capacity all of them, and of the last a curve of bytes against time.

    `only` names the stages that may be used; `limits` hold for each search of a stage, and who cancels them
    gets the stages so far. `schedule` fixes the order stage to one that has an op a step. `times` are what
    ops take: without them none runs again; `random`, of RandomOps, says what becomes of what was drawn. Every
    rewrite is checked. `on_order` hears how far a search for an order is, `on_curve` of points of the curve.

    Raises
    ------
    InputError: an unknown stage or `random`, options with a schedule of their own, a capacity below 0; a
        `schedule` without an order stage, or one in which an op would read or write something else.
    """
    how = how or Preparation()
    _check(graph, capacity, only, how, random)
    ordered = None if schedule is None else _fixed_order(graph, schedule, only)
    on_gradients(held := held_gradients(graph))
    arena = None if capacity is None else capacity - state_bytes_of(graph)
    stages: list[Stage] = []
    curve: Curve | None = None
    used: list[StageName] = []
    recomputing: Recomputing | None = None
    for name in stages_for(graph, only, times):
        if stages and limits is not None and limits.stopped:
            break
        tell(name.replace("_", " "))
        if name not in AT_ANY_SIZE and times is not None:
            last, moves = _whole(stages), ordered is None
            recomputing = recomputing or _recomputing(last, graph, used, how, limits, times, random, moves)
            if arena is None:
                curve = recomputing.curve(on_curve) if name is StageName.RECOMPUTE else None
                break
            stages.append(_timed(name, recomputing, arena, stages[-1].name is StageName.RECOMPUTE))
        elif name is StageName.CHUNK:
            plan_of = _plan_of([each for each in used if ordered is None or each != "reorder"], how, limits)
            stages.append(_in_pieces(stages[-1], arena, times, plan_of, limits))
        else:
            used.append(name)
            stages.append(_stage(used, graph, how, limits, ordered, on_order))
        watch(stages[-1])
        fits = arena is not None and stages[-1].plan.arena_bytes <= arena
        if fits and stages[-1].is_quick:
            break
    return summed_up(graph, capacity, only, stages, held, times, curve, random)


def stages_for(
    graph: Graph, only: Sequence[str] = LOWERING, times: OpTimes | None = None
) -> tuple[StageName, ...]:
    """The stages that `graph` can go through, of those in `only`, and that in which it was captured."""
    return tuple(name for name in StageName if not _left_out(name, graph, only, times))


def summed_up(
    graph: Graph,
    capacity: int | None,
    only: Sequence[str],
    stages: Sequence[Stage],
    held: tuple[HeldGradients, ...] = (),
    times: OpTimes | None = None,
    curve: Curve | None = None,
    random: str = RandomOps.KEEP,
) -> Fitted:
    """What `stages` of `graph`, one at least, say of `capacity`: those up to the first that fits, or the
    quickest schedule of `curve` that does. `held` says what holds its gradients, as the fit has found it."""
    state, reached = state_bytes_of(graph), list(StageName)
    asked = [name for name in stages_for(graph, only, times) if capacity is not None or name in AT_ANY_SIZE]
    end = asked[-1]
    stages = _with_curve(stages, None if capacity is None else capacity - state, curve)
    fitting = [capacity is not None and stage.plan.arena_bytes + state <= capacity for stage in stages]
    if True in fitting:
        # What comes after the stage that fits is not needed, unless it is quicker.
        first = fitting.index(True)
        later = [place for place in range(first, len(stages)) if fitting[place]]
        last = min(later, key=lambda place: stages[place].extra_seconds)
        stages = stages[: last + 1]
        reached = reached[: reached.index(stages[-1].name)]
    reached = [name for name in reached if name is not StageName.CHUNK or name in only]
    skipped = tuple((name, why) for name in reached if (why := _left_out(name, graph, only, times)))
    kept = random == RandomOps.KEEP and bool(drawing_ops(graph))
    verdict, proof = _judge(capacity, state, stages, end, kept)
    complete = True in fitting or stages[-1].name is end
    return Fitted(capacity, state, tuple(stages), skipped, verdict, proof, complete, held, curve)


def _with_curve(stages: Sequence[Stage], arena: int | None, curve: Curve | None) -> Sequence[Stage]:
    """`stages`, with the quickest schedule of `curve` within `arena` behind, or the smallest of it; where the
    curve goes lower than they do, or proves that nothing fits."""
    if arena is None or curve is None or any(stage.time for stage in stages):
        return stages
    found = curve.within(arena) or min(curve.points, key=lambda point: point.plan.arena_bytes)
    # Where the smallest is too large, what is said is of as many bytes as it needs.
    within = max(arena, found.plan.arena_bytes)
    bound = None if arena < curve.least_bytes else curve.least_seconds(within)
    time = replace(found.time, bound_seconds=bound)
    return [*stages, Stage(StageName.RECOMPUTE, found.graph, found.plan, None, time)]


def _check(graph: Graph, capacity: int | None, only: Sequence[str], how: Preparation, random: str) -> None:
    if random not in list(RandomOps):
        raise InputError("--random", "", repr(random), f"one of {', '.join(RandomOps)}")
    if capacity is not None and capacity < 0:
        raise InputError(graph.name, "capacity", str(capacity), "0 or more bytes")
    for name in only:
        if name not in CHOICES:
            raise InputError("--only", "", repr(name), f"some of {', '.join(CHOICES)}")
    if how.streams is not None or how.schedule is not None or how.early_updates:
        asked = "streams" if how.streams is not None else "a schedule" if how.schedule else "early updates"
        raise InputError(graph.name, "the order", asked, "none of them: the order is looked for")


def _left_out(name: StageName, graph: Graph, only: Sequence[str], times: OpTimes | None) -> str:
    if name in CHOICES and name not in only:
        return "not asked for"
    if name is StageName.GRADIENTS and not gradients(graph):
        return _why_no_gradients(graph)
    if name not in AT_ANY_SIZE and times is None:
        return "nothing says what its ops take"
    if name is StageName.OFFLOAD and times is not None and times.host_bandwidth is None:
        return "nothing says how fast copies to the host are: --host-bandwidth"
    timed = name not in AT_ANY_SIZE or name is StageName.CHUNK
    if timed and any(storage.held_by for storage in graph.storages):
        return "an eager run, in which names hold what ops make: capture the model"
    return ""


def _why_no_gradients(graph: Graph) -> str:
    known = gradient_storages(graph)
    if not known:
        return "no training step: no op of an optimizer reads what a backward pass makes"
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    if known.keys() & {home[name] for name in graph.outputs}:
        return str(HeldBy.RETURNED)
    return "each goes with its last reader already"


def _fixed_order(graph: Graph, schedule: Schedule, only: Sequence[str]) -> Graph:
    """`graph` in the order of `schedule`. Raises InputError for one that it cannot run in."""
    if StageName.REORDER not in only:
        raise InputError("--schedule", "", "no reorder in --only", "the stage whose order it fixes")
    ordered = in_order_of(graph, schedule, "schedule")
    check_order(graph, ordered, graph.name)
    return ordered


def _stage(
    used: Sequence[StageName],
    graph: Graph,
    how: Preparation,
    limits: SolveLimits | None,
    ordered: Graph | None,
    on_order: OrderTell | None,
) -> Stage:
    """The graph after the stages `used`, the last of which is new; in the order of `ordered`, where that is
    fixed."""
    if StageName.GRADIENTS in used:
        graph = free_gradients(graph)
    in_place = StageName.IN_PLACE in used
    order = None
    if StageName.REORDER in used and ordered is not None:
        graph = replace(graph, ops=ordered.ops)
    elif StageName.REORDER in used:
        order = checked_reorder(graph, _again(limits), on_order, in_place=in_place)
        graph = order.graph
    how = replace(how, in_place=in_place or how.in_place, concat=in_place or how.concat)
    plan = make_plan(prepare(graph, how), "auto", limits=_again(limits))
    return Stage(used[-1], graph, plan, order)


def _recomputing(
    before: Stage,
    graph: Graph,
    used: Sequence[StageName],
    how: Preparation,
    limits: SolveLimits | None,
    times: OpTimes,
    random: str,
    reorders: bool,
) -> Recomputing:
    """The stage behind `before`, of the order found there and of that of `graph`; what the stages `used` have
    done is done again to what it makes. `reorders`: an order stage among them may choose others."""
    plan_of = _plan_of(used, how, limits)
    as_is = _plan_of([name for name in used if name is not StageName.REORDER], how, limits)
    writes = StageName.IN_PLACE in used or how.in_place or how.concat
    given = free_gradients(graph) if StageName.GRADIENTS in used else graph
    orders = [before.graph] if before.graph.ops == given.ops else [before.graph, given]
    redraws = random == RandomOps.STATE and bool(drawing_ops(graph))
    reorders = reorders and StageName.REORDER in used
    new = partial(_again, limits)
    return Recomputing(orders, before.plan, times, plan_of, as_is, new, writes, redraws, reorders)


def _timed(name: StageName, recomputing: Recomputing, arena: int, runs_again: bool) -> Stage:
    """The stage in which ops run again, or that in which results wait on the host, too."""
    if name is StageName.RECOMPUTE:
        point = recomputing.fit(arena)
        return Stage(name, point.graph, point.plan, None, point.time)
    moved = Offloading(recomputing, runs_again).fit(arena)
    return Stage(
        name,
        moved.graph,
        moved.plan,
        time=moved.time,
        copied_bytes=moved.copied_bytes,
        impossible=moved.impossible,
    )


def _in_pieces(
    before: Stage, arena: int | None, times: OpTimes | None, plan_of: PlanOf, limits: SolveLimits | None
) -> Stage:
    """The stage behind `before` in which regions run in pieces."""
    cut = in_pieces(before.graph, before.plan, arena, times, plan_of, lambda: _again(limits))
    return Stage(StageName.CHUNK, cut.graph, cut.plan, pieces=cut.pieces)


def _whole(stages: Sequence[Stage]) -> Stage:
    """The last stage in which nothing runs in pieces."""
    return [stage for stage in stages if stage.pieces is None][-1]


def _plan_of(used: Sequence[StageName], how: Preparation, limits: SolveLimits | None) -> PlanOf:
    """What plans a graph that is rewritten further, and does to it again what the stages `used` have done."""
    in_place = StageName.IN_PLACE in used
    how = replace(how, in_place=in_place or how.in_place, concat=in_place or how.concat)
    return plans_again(how, lambda: _again(limits), StageName.REORDER in used, in_place)


def _again(limits: SolveLimits | None) -> SolveLimits:
    """Limits for one search: it ends with `limits`, but when its own time is up the next one still has all of
    its time; and it counts for itself."""
    if limits is None:
        return SolveLimits(STAGE_SECONDS)
    own = limits.child(limits.seconds, limits.threads)
    own.counter = np.zeros_like(own.counter)
    return own


def _judge(
    capacity: int | None, state: int, stages: Sequence[Stage], end: StageName, kept: bool
) -> tuple[Verdict | None, str]:
    """The verdict, and what proves it; `end` is the last stage that may be used, `kept` says whether there
    are random numbers that are not drawn again."""
    if capacity is None:
        return None, ""
    if any(stage.plan.arena_bytes + state <= capacity for stage in stages):
        return Verdict.FITS, ""
    if state > capacity:
        return Verdict.DOES_NOT_FIT, "weights, optimizer state and inputs alone need more"
    last = stages[-1]
    if end is StageName.CHUNK or any(stage.pieces for stage in stages):
        # What is proved is proved of whole ops.
        return Verdict.UNDECIDED, ""
    if last.name is end and last.time is not None and last.time.bound_seconds is None:
        again = "every order of the ops, however often they run again"
        again += ", where what was drawn is kept" * kept
        return Verdict.DOES_NOT_FIT, last.impossible or again
    if last.time is not None or last.name is not end or last.bound_bytes + state <= capacity:
        return Verdict.UNDECIDED, ""
    if last.order is not None and last.is_of_all_orders:
        return Verdict.DOES_NOT_FIT, f"every order of the ops, {last.order.proved_by}"
    if last.name is StageName.CAPTURED:
        return Verdict.DOES_NOT_FIT, "every arena for the graph as it is"
    # Other choices of writes in place, or of concatenations in another order, may need less.
    return Verdict.UNDECIDED, ""
