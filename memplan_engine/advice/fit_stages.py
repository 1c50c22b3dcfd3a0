"""Does a graph fit into a capacity, and by which rewrites? Stages, cheapest first, until it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from memplan_engine.analysis.claims import doubt
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Role, storage_bytes
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.profile import load_of
from memplan_engine.rewrites.held_gradients import (
    HeldGradients,
    free_gradients,
    gradients,
    held_gradients,
    why_no_gradients,
)
from memplan_engine.rewrites.order.checked import check_order, checked_reorder
from memplan_engine.rewrites.order.order_search import Tell as OrderTell
from memplan_engine.rewrites.order.reorder import Reordered
from memplan_engine.rewrites.reuse.kinds import is_concat
from memplan_engine.schedule import Schedule, in_order_of
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verdict import Reason, Verdict, doubted

STAGE_SECONDS = 10.0
"""Of each search of a stage, for the order and for the plan, where no limit is given."""
Tell = Callable[[str], None]
"""Hears of each stage as it begins."""
Watch = Callable[["Stage"], None]
"""Hears of each stage as it is there."""
HearHeld = Callable[[tuple[HeldGradients, ...]], None]
"""Hears what holds the gradients of a training step, before the first stage begins."""


class StageName(StrEnum):
    """The stages in their order: the graph as it was captured; writes in place, and concatenations without
    copies; another order of the ops; gradients freed as soon as the optimizer has read them."""

    CAPTURED = "captured"
    IN_PLACE = "in_place"
    REORDER = "reorder"
    GRADIENTS = "gradients"


LOWERING = tuple(name for name in StageName if name is not StageName.CAPTURED)
"""The stages that change something, which can be chosen among."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """`graph` is planned as `plan` after this stage and those before it. `order` is there where the order of
    ops was searched."""

    name: StageName
    graph: Graph
    plan: Plan
    order: Reordered | None = None

    @property
    def load_bytes(self) -> int:
        """Live bytes at the worst step."""
        return load_of(self.plan.problem).peak

    @property
    def rewritten(self) -> Graph:
        """The graph that is planned: `graph` with what is written in place and concatenated without copies.
        `fitted_program` makes a program of it."""
        origin = self.plan.problem.origin
        assert origin is not None
        return origin.graph

    @property
    def is_of_all_orders(self) -> bool:
        """Whether the bound holds for every order of the ops and every choice of writes in place, and not for
        this one alone. Concatenations without copies need less than that bound knows of."""
        return self.order is not None and not (self.order.in_place and _has_concats(self.graph))

    @property
    def bound_bytes(self) -> int:
        """What is proved to be needed at least, by this graph in every arena, or by all its orders."""
        if self.order is not None and self.is_of_all_orders:
            return self.order.bound_bytes
        return self.plan.bound.nbytes

    @property
    def proved(self) -> bool:
        """Whether the arena is proved to be the smallest: of this graph, or of all its orders."""
        is_least = not self.is_of_all_orders or self.load_bytes <= self.bound_bytes
        # The packing has a bound of its own: live bytes know nothing of alignment.
        return is_least and self.plan.arena_bytes <= self.plan.bound.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The stages up to the first that fits, or all of them, and the verdict on arena + state; None where no
    capacity was given. `skipped` says of each stage that was left out why. Bytes throughout."""

    capacity: int | None
    state_bytes: int
    stages: tuple[Stage, ...]
    skipped: tuple[tuple[StageName, str], ...]
    verdict: Verdict | None
    proof: str = ""
    """What proves that it does not fit, in words."""
    complete: bool = True
    """Whether no stage was left out because somebody cancelled."""
    gradients: tuple[HeldGradients, ...] = ()
    """The gradients of a training step, by what keeps them from being freed one by one."""
    reason: Reason | None = None
    """Why an undecided verdict stays undecided whatever the stages reach."""

    @property
    def best(self) -> Stage:
        """The stage with the smallest arena, the first of several."""
        return min(self.stages, key=lambda stage: stage.plan.arena_bytes)

    @property
    def needed_bytes(self) -> int:
        """Arena + state."""
        return self.state_bytes + self.best.plan.arena_bytes


def _has_concats(graph: Graph) -> bool:
    return any(is_concat(op.kind) for op in graph.ops)


def state_bytes_of(graph: Graph) -> int:
    """Bytes of what is there before the first op: weights, the state of an optimizer, and inputs."""
    return storage_bytes(graph, Role.CONSTANT) + storage_bytes(graph, Role.INPUT)


def fit_graph(
    graph: Graph,
    capacity: int | None = None,
    only: Sequence[str] = LOWERING,
    *,
    how: Preparation | None = None,
    limits: SolveLimits | None = None,
    schedule: Schedule | None = None,
    tell: Tell = lambda part: None,
    watch: Watch = lambda stage: None,
    on_order: OrderTell | None = None,
    on_gradients: HearHeld = lambda held: None,
) -> Fitted:
    """Plan `graph`, and rewrite it in stages, cheapest first, until its arena fits into `capacity` bytes
    beside its state; without a capacity all of them.

    `only` names the stages that may be used, of LOWERING. Each search of a stage has all seconds and nodes of
    `limits`. After `limits.cancel()` the stages so far are the answer. `schedule` fixes the order stage to an
    order of one op a step, which is then not searched. Every rewrite goes through its checker. `on_order` is
    called with the progress of each search for an order.

    Raises
    ------
    InputError: an unknown stage, options that have a schedule of their own, a capacity below 0; a `schedule`
        without an order stage, or one in which an op would read or write something else than before.
    """
    how = how or Preparation()
    _check(graph, capacity, only, how)
    ordered = None if schedule is None else _fixed_order(graph, schedule, only)
    limits = limits or SolveLimits(STAGE_SECONDS)
    held = held_gradients(graph)
    on_gradients(held)
    state = state_bytes_of(graph)
    stages: list[Stage] = []
    used: list[StageName] = []
    for name in stages_for(graph, only):
        if stages and limits.stopped:
            break
        tell(name.replace("_", " "))
        used.append(name)
        stages.append(_stage(used, graph, how, limits, ordered, on_order))
        watch(stages[-1])
        if capacity is not None and stages[-1].plan.arena_bytes + state <= capacity:
            break
    return summed_up(graph, capacity, only, stages, held)


def stages_for(graph: Graph, only: Sequence[str] = LOWERING) -> tuple[StageName, ...]:
    """The stages that `graph` can go through, of those in `only`, and that in which it was captured."""
    return tuple(name for name in StageName if not _left_out(name, graph, only))


def summed_up(
    graph: Graph,
    capacity: int | None,
    only: Sequence[str],
    stages: Sequence[Stage],
    held: tuple[HeldGradients, ...] = (),
) -> Fitted:
    """What `stages` of `graph`, one at least, say of `capacity`: those up to the first that fits. `held` says
    what holds its gradients, as the fit has found it."""
    state, reached = state_bytes_of(graph), list(StageName)
    end = stages_for(graph, only)[-1]
    fitting = [capacity is not None and stage.plan.arena_bytes + state <= capacity for stage in stages]
    if True in fitting:
        # What comes after the stage that fits is not needed.
        stages = stages[: fitting.index(True) + 1]
        reached = reached[: reached.index(stages[-1].name)]
    skipped = tuple((name, why) for name in reached if (why := _left_out(name, graph, only)))
    verdict, proof = _judge(capacity, state, stages, end)
    reason = None
    # Weights and what optimizers keep are the same in a compiled run.
    if verdict is not None and not (capacity is not None and state > capacity):
        verdict, reason = doubted(verdict, doubt(stages[0].plan.problem))
    complete = True in fitting or stages[-1].name is end
    return Fitted(capacity, state, tuple(stages), skipped, verdict, proof, complete, held, reason)


def _check(graph: Graph, capacity: int | None, only: Sequence[str], how: Preparation) -> None:
    if capacity is not None and capacity < 0:
        raise InputError(graph.name, "capacity", str(capacity), "0 or more bytes")
    for name in only:
        if name not in LOWERING:
            raise InputError("--only", "", repr(name), f"some of {', '.join(LOWERING)}")
    if how.streams is not None or how.schedule is not None or how.early_updates:
        asked = "streams" if how.streams is not None else "a schedule" if how.schedule else "early updates"
        raise InputError(graph.name, "the order", asked, "none of them: the order is looked for")


def _left_out(name: StageName, graph: Graph, only: Sequence[str]) -> str:
    if name in LOWERING and name not in only:
        return "not asked for"
    if name is StageName.GRADIENTS and not gradients(graph):
        return why_no_gradients(graph)
    return ""


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
    limits: SolveLimits,
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
        order = checked_reorder(graph, limits.again(), on_order, in_place=in_place)
        graph = order.graph
    how = replace(how, in_place=in_place or how.in_place, concat=in_place or how.concat)
    plan = make_plan(prepare(graph, how), "auto", limits=limits.again())
    return Stage(used[-1], graph, plan, order)


def _judge(
    capacity: int | None, state: int, stages: Sequence[Stage], end: StageName
) -> tuple[Verdict | None, str]:
    """The verdict, and what proves it; `end` is the last stage that may be used."""
    if capacity is None:
        return None, ""
    if any(stage.plan.arena_bytes + state <= capacity for stage in stages):
        return Verdict.FITS, ""
    if state > capacity:
        return Verdict.DOES_NOT_FIT, "weights, optimizer state and inputs alone need more"
    last = stages[-1]
    if last.name is not end or last.bound_bytes + state <= capacity:
        return Verdict.UNDECIDED, ""
    if last.order is not None and last.is_of_all_orders:
        return Verdict.DOES_NOT_FIT, f"every order of the ops, {last.order.proved_by}"
    if last.name is StageName.CAPTURED:
        return Verdict.DOES_NOT_FIT, "every arena for the graph as it is"
    # Other choices of writes in place, or of concatenations in another order, may need less.
    return Verdict.UNDECIDED, ""
