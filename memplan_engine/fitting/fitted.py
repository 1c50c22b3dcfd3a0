"""What a fit comes to: its stages, and the verdict on a capacity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.chunk_stage import InPieces
from memplan_engine.fitting.recompute_stage import Curve, StageTime
from memplan_engine.graph import Graph, Role, storage_bytes
from memplan_engine.op_kinds.generators import GENERATOR_BYTES, KEEP_GENERATOR
from memplan_engine.plan import Plan
from memplan_engine.profile import load_of
from memplan_engine.rewrites.held_gradients import HeldGradients
from memplan_engine.rewrites.order.reorder import Reordered
from memplan_engine.rewrites.reuse.kinds import is_concat


class StageName(StrEnum):
    """The stages in their order: the graph as it was captured; writes in place, and concatenations without
    copies; another order of the ops; gradients freed as soon as the optimizer has read them; regions in
    pieces, which changes last digits; ops that run again; results that wait on the host, beside ops that run
    again."""

    CAPTURED = "captured"
    IN_PLACE = "in_place"
    REORDER = "reorder"
    GRADIENTS = "gradients"
    CHUNK = "chunk"
    RECOMPUTE = "recompute"
    OFFLOAD = "offload"


class RandomOps(StrEnum):
    """What becomes of random numbers where ops run again: what was drawn is kept, such as a mask of dropout;
    or the state of the generator is, and they are drawn again from it."""

    KEEP = "keep"
    STATE = "state"


AT_ANY_SIZE = frozenset(StageName) - {StageName.RECOMPUTE, StageName.OFFLOAD}
"""The stages that take next to no time, and are tried whatever the capacity, even where there is none."""
CHOICES = tuple(name for name in StageName if name is not StageName.CAPTURED)
"""The stages that change something, which can be chosen among."""
LOWERING = tuple(name for name in CHOICES if name is not StageName.CHUNK)
"""Those that keep every bit of the results, which are used unless somebody chooses."""
QUICK = 0.005
"""A stage that fits and takes less than this share of the time more is the last: another would save less."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """`graph` is planned as `plan` after this stage and those before it. `order` is there where the order of
    ops was searched, `pieces` where regions may run in pieces, `time` where ops run again or wait for copies,
    of `copied_bytes` to the host and as many back. `impossible` is what proves that no schedule has so few
    bytes, in words; "" where nothing does."""

    name: StageName
    graph: Graph
    plan: Plan
    order: Reordered | None = None
    time: StageTime | None = None
    pieces: InPieces | None = None
    copied_bytes: int = 0
    impossible: str = ""

    @property
    def generator_states(self) -> int:
        """How many states of the random generator are kept, for ops that draw again."""
        return sum(op.kind == KEEP_GENERATOR for op in self.graph.ops)

    @property
    def generator_bytes(self) -> int:
        """What they take, in the arena."""
        return self.generator_states * GENERATOR_BYTES

    @property
    def extra_seconds(self) -> float:
        """What its ops take beside running once."""
        return self.time.extra_seconds if self.time else 0.0

    @property
    def is_quick(self) -> bool:
        """Whether it takes next to no time more than running each op once."""
        return self.time is None or self.time.extra < QUICK

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
        """Whether the arena is proved to be the smallest: of this graph, or of all its orders. Nothing is of
        pieces, whose results have other last digits."""
        return self.pieces is None and self.plan.arena_bytes <= self.bound_bytes

    @property
    def live_proved(self) -> bool:
        """Whether it is proved that no order of the ops has fewer live bytes; an arena may need a little
        more, for alignment."""
        return self.is_of_all_orders and self.load_bytes <= self.bound_bytes


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
    curve: Curve | None = None
    """Bytes against time, where ops run again; searched without a capacity."""

    @property
    def best(self) -> Stage:
        """Of the stages that fit the one that takes least time; where none does, or no capacity was given,
        the one with the smallest arena. The first of several."""
        left = -1 if self.capacity is None else self.capacity - self.state_bytes
        fitting = [stage for stage in self.stages if stage.plan.arena_bytes <= left]
        if fitting:
            return min(fitting, key=lambda stage: (stage.extra_seconds, stage.plan.arena_bytes))
        return min(self.stages, key=lambda stage: stage.plan.arena_bytes)

    def saved_bytes(self, stage: Stage) -> int:
        """What its arena is smaller by than that of the stage before; negative where it is larger."""
        place = self.stages.index(stage)
        return self.stages[max(0, place - 1)].plan.arena_bytes - stage.plan.arena_bytes

    @property
    def again(self) -> Stage | None:
        """The stage in which ops run again; None without one."""
        return next((stage for stage in self.stages if stage.name is StageName.RECOMPUTE), None)

    @property
    def best_order(self) -> Stage:
        """The best of the stages in which each op runs once."""
        once = [stage for stage in self.stages if stage.time is None and stage.pieces is None]
        return min(once, key=lambda stage: stage.plan.arena_bytes)

    @property
    def workspace_bytes(self) -> int:
        """The temporaries inside ops that lie outside the arena of the best stage: not in the verdict."""
        return self.best.plan.workspace_bytes

    @property
    def needed_bytes(self) -> int:
        """Arena + state."""
        return self.state_bytes + self.best.plan.arena_bytes


def _has_concats(graph: Graph) -> bool:
    return any(is_concat(op.kind) for op in graph.ops)


def state_bytes_of(graph: Graph) -> int:
    """Bytes of what is there before the first op: weights, the state of an optimizer, and inputs."""
    return storage_bytes(graph, Role.CONSTANT) + storage_bytes(graph, Role.INPUT)
