"""Buffers that move between banks: the copies of a plan whose graph has ops that move."""

from __future__ import annotations

from typing import NamedTuple

from memplan_engine.op_kinds.copies import MOVE
from memplan_engine.problem import Problem


class BankCopy(NamedTuple):
    """At `step` all `nbytes` bytes of the buffer `source` are copied into the buffer `target` (rows of the
    problem), which lies in another bank and is the same storage of the model from then on."""

    step: int
    source: int
    target: int
    nbytes: int


def has_moves(problem: Problem) -> bool:
    """Whether the graph of `problem` has copies between banks."""
    return problem.origin is not None and any(op.kind == MOVE for op in problem.origin.graph.ops)


def copies_of(problem: Problem) -> tuple[BankCopy, ...]:
    """The copies between banks in the schedule of `problem`, by step; none where its graph has none."""
    if problem.origin is None:
        return ()
    graph, steps = problem.origin.graph, problem.origin.schedule.step_of_op
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    rows = {name: row for row, name in enumerate(problem.names)}
    found = []
    for op, step in zip(graph.ops, steps, strict=True):
        if op.kind == MOVE and op.inputs and op.outputs:
            source, target = rows.get(home[op.inputs[0]]), rows.get(home[op.outputs[0]])
            if source is not None and target is not None:
                found.append(BankCopy(step, source, target, int(problem.size[source])))
    return tuple(sorted(found))
