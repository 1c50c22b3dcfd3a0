"""Which ops run at which step."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.graph import Graph


@dataclass(frozen=True, slots=True)
class Schedule:
    """`step_of_op[i]` is the step at which `graph.ops[i]` runs; steps count from 0 to `steps` − 1."""

    step_of_op: tuple[int, ...]
    steps: int


def sequential(graph: Graph) -> Schedule:
    """One op a step, in the graph's order."""
    return Schedule(tuple(range(len(graph.ops))), len(graph.ops))
