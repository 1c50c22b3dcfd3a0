"""The algorithm that ExecuTorch's `MemoryPlanningPass` calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from memplan_engine.errors import PlanError
from memplan_engine.executorch.regions import (
    DEFAULT_MEMORY,
    Clock,
    Life,
    Region,
    Spec,
    make_region,
    memory_of,
)
from memplan_engine.plan import Plan
from memplan_engine.planner import make_plan
from memplan_engine.problem import make_problem
from memplan_engine.strategies.base import SolveLimits

DEFAULT_SECONDS = 1.0
"""For each memory of each method: as a rule the plan is proved optimal in a fraction of it."""


@dataclass(slots=True)
class _Planned:
    """A region with its plans, one for each memory."""

    region: Region
    plans: dict[int, Plan]


class ExecutorchPlanner:
    """Plans the memory of ExecuTorch programs, each memory by itself, with memplan's proof.

        from executorch.exir import ExecutorchBackendConfig
        from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
        from executorch.exir.passes import MemoryPlanningPass

        planner = ExecutorchPlanner()
        suite = MemoryPlanningAlgorithmSuite([planner])
        config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(suite))
        program = edge_program.to_executorch(config)

    Tensors keep the memory that earlier passes gave them (`mem_id`), those with a `storage_base` lie in its
    bytes, and what `cond`, `map` and `scan` run is planned together with the method that calls it, where
    ExecuTorch's own algorithms reserve room of its own for it. Written for ExecuTorch 1.5.

    Parameters
    ----------
    strategy: the name of a strategy, see `memplan strategies`.
    seconds: the time limit for each memory of a method, and of a module that it calls.
    """

    __name__ = "memplan"
    """As which a suite with several algorithms knows it."""

    def __init__(self, strategy: str = "auto", seconds: float = DEFAULT_SECONDS) -> None:
        self._strategy = strategy
        self._seconds = seconds
        self._planned: WeakKeyDictionary[Any, _Planned] = WeakKeyDictionary()
        self.plans: list[Plan] = []
        """Of the methods that were planned, in their order, one for each memory, with bound and proof. The
        buffers stand in the order in which they begin; a step is a node, those of called modules included."""

    def __call__(
        self,
        alignment: int,
        specs: Iterable[Spec],
        graph_module: Any,
        graph_signature: Any,
        extra_padding: int = 0,
    ) -> Any:
        """As ExecuTorch calls an algorithm: `place`, as its `MemoryAlgoResult`. Raises as `place` does."""
        from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult

        homes, sizes = self.place(alignment, specs, graph_module, extra_padding)
        # Without a shared object: those are for algorithms that place whole tensors in turn.
        placed = {spec: SpecAllocResult(memory, None, offset) for spec, memory, offset in homes}
        return MemoryAlgoResult(placed, sizes)

    def place(
        self, alignment: int, specs: Iterable[Spec], graph_module: Any, extra_padding: int = 0
    ) -> tuple[list[tuple[Spec, int, int]], list[int]]:
        """Plan `specs`, whose lifetimes are known, and the tensors of the modules that `graph_module` calls.

        Returns each spec with its memory and its first byte there, and the bytes of each memory,
        `extra_padding` included. Memory 0, that of the constants, has none.

        Raises
        ------
        PlanError: a spec without a lifetime, one in the bytes of another that is not planned or has no room,
        and as `make_plan` does.
        """
        specs = list(specs)
        for spec in specs:
            spec.realign(alignment)
        known = {module: planned.region for module, planned in self._planned.items()}
        region = make_region(specs, graph_module, known)
        clock = Clock(region)
        memories: dict[int, list[Life]] = {}
        for life in clock.buffers():
            if life.specs[0].storage_base is None:
                memories.setdefault(memory_of(life.specs[0]), []).append(life)
        plans = {memory: self._plan(lives, clock.steps) for memory, lives in sorted(memories.items())}
        self._note(graph_module, _Planned(region, plans))
        # As many as ExecuTorch's own have, which a suite asks for.
        sizes = [0] * (max(plans, default=DEFAULT_MEMORY) + 1)
        homes: dict[int, tuple[int, int]] = {}
        for memory, plan in plans.items():
            sizes[memory] = plan.arena_bytes + extra_padding
            for life, offset in zip(memories[memory], plan.offsets.tolist(), strict=True):
                homes |= {id(spec): (memory, offset) for spec in life.specs}
        placed = [spec for life in clock.buffers() for spec in life.specs]
        return [(spec, *_within(spec, homes)) for spec in placed], sizes

    def _plan(self, lives: list[Life], steps: int) -> Plan:
        problem = make_problem(
            [life.start for life in lives],
            [life.end + 1 for life in lives],
            [max(spec.allocated_memory for spec in life.specs) for life in lives],
            alignment=[max(spec.alignment for spec in life.specs) for life in lives],
            steps=steps,
            name="executorch",
        )
        return make_plan(problem, self._strategy, limits=SolveLimits(self._seconds))

    def _note(self, module: Any, planned: _Planned) -> None:
        """Keep the plans of a method, in place of those of the modules that it calls."""
        parts = {id(part) for call in planned.region.calls for part in call.regions}
        called = [other for other in self._planned.values() if id(other.region) in parts]
        gone = {id(plan) for other in called for plan in other.plans.values()}
        self.plans = [plan for plan in self.plans if id(plan) not in gone] + list(planned.plans.values())
        self._planned[module] = planned


def _within(spec: Spec, homes: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Memory and offset of a spec: those of its base, and how far it lies in it."""
    ahead, base = 0, spec
    while base.storage_base is not None:
        ahead += base.storage_base_offset
        base = base.storage_base
    memory, offset = homes[id(base)]
    if (offset + ahead) % spec.alignment or not 0 <= ahead <= base.allocated_memory - spec.allocated_memory:
        found = f"{spec.allocated_memory} bytes at byte {ahead} of {base.allocated_memory}"
        raise PlanError(
            f"a tensor within another: found {found}, expected it whole and aligned to {spec.alignment} bytes"
        )
    return memory, offset + ahead
