"""What ops hold for themselves beside the arena: temporaries of the operators inside them, and workspaces."""

from __future__ import annotations

from collections.abc import Iterator

from memplan_engine.graph import NO_WORKSPACE, Op, Workspace
from memplan_engine.problem import Problem

SUFFIX = ".workspace"
"""What the scratch of an op is called, behind the op's name."""


def workspace_of(problem: Problem) -> Workspace:
    """What the ops behind `problem` need beside its arena, bytes: the most shared scratch at one step, and
    the sum of all that is unique; nothing for buffers without a graph."""
    if problem.origin is None:
        return NO_WORKSPACE
    shared = max(shared_by_step(problem).values(), default=0)
    return Workspace(shared, sum(op.workspace.unique for op in problem.origin.graph.ops))


def shared_by_step(problem: Problem) -> dict[int, int]:
    """The shared scratch in use, bytes, at each step that uses any: ops of one step run at once."""
    found: dict[int, int] = {}
    for op, step in scratching(problem):
        found[step] = found.get(step, 0) + op.workspace.shared
    return found


def scratching(problem: Problem) -> Iterator[tuple[Op, int]]:
    """The ops with shared scratch, and the step at which each runs."""
    if problem.origin is not None:
        steps = problem.origin.schedule.step_of_op
        for op, step in zip(problem.origin.graph.ops, steps, strict=True):
            if op.workspace.shared:
                yield op, step
