"""Tensor usage records: the same lifetimes in the words of AITemplate, TFLite and Pisarchyk & Lee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memplan_engine.graph import Graph
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, to_problem
from memplan_engine.problem import Problem, make_problem
from memplan_engine.schedule import Schedule


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """A tensor that owns its memory: the first and the last step that touch it or a view of it, inclusive,
    and its size in bytes, rounded up to the alignment."""

    tensor: str
    first_op: int
    last_op: int
    size: int


def usage_records(
    graph: Graph, schedule: Schedule | None = None, *, alignment: int = DEFAULT_ALIGNMENT
) -> tuple[UsageRecord, ...]:
    """The records of `graph` in the order in which its ops first touch the tensors (AITemplate's).

    Inputs and constants have none and neither have views of them; a view extends the tensor that it shows,
    through views of views; outputs last to the last op. With several ops a step, "op" means step.
    """
    problem = to_problem(graph, schedule, alignment=alignment, round_sizes=True)
    first: dict[str, str] = {}
    for tensor in graph.tensors:
        first.setdefault(tensor.storage, tensor.name)
    columns = (problem.names, problem.start.tolist(), problem.end.tolist(), problem.size.tolist())
    return tuple(
        UsageRecord(first.get(name, name), start, end - 1, size)
        for name, start, end, size in zip(*columns, strict=True)
    )


def records_problem(records: Sequence[UsageRecord], *, alignment: int = 1, name: str = "records") -> Problem:
    """The problem of placing `records`. Ties are broken by the first op, then by the order of the records:
    AITemplate's order, for theirs come sorted by first op, as those of `usage_records` do.

    Raises
    ------
    InputError: a last op before the first, a negative size, a tensor twice.
    """
    return make_problem(
        [record.first_op for record in records],
        [record.last_op + 1 for record in records],
        [record.size for record in records],
        names=[record.tensor for record in records],
        alignment=alignment,
        name=name,
    )
