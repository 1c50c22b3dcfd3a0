"""Where each buffer comes from: the op that makes it, who reads it, its module and source line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, get_type_hints

from memplan_engine.graph import Graph, Op, OpProperty, Role, Source
from memplan_engine.problem import Problem

if TYPE_CHECKING:
    from memplan_engine.callers import Caller, Callers


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the graph knows of one buffer. For buffers that come from no graph all but `kind` is empty.

    `maker` is the first op that makes one of its tensors, or who asked for it in a recording, and `kind` the
    maker's; `readers` are the other ops that touch it, in order; `tensors` the tensors that share it, the
    first one first.
    """

    kind: str = "buffer"
    role: Role | None = None
    maker: Op | Caller | None = None
    readers: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def producer(self) -> str:
        """The name of the op that makes it."""
        return self.maker.name if isinstance(self.maker, Op) else ""

    @property
    def module(self) -> str:
        """The module that the maker stands in."""
        return self.maker.module if self.maker else ""

    @property
    def source(self) -> Source | None:
        """The line of code that the maker comes from."""
        return self.maker.source if self.maker else None


UNKNOWN = Provenance()


def _op_properties() -> tuple[OpProperty, ...]:
    hints = get_type_hints(Op, include_extras=True)
    return tuple(
        told._replace(name=each.name, default=each.default)
        for each in fields(Op)
        for told in getattr(hints[each.name], "__metadata__", ())
    )


OP_PROPERTIES = _op_properties()
"""What people are told of the op that makes a buffer, in the order of its fields."""


def find_provenance(problem: Problem) -> tuple[Provenance, ...]:
    """The provenance of every buffer, in the problem's order: O(ops + tensors), once a problem."""
    return problem.once(_find_provenance)


def _find_provenance(problem: Problem) -> tuple[Provenance, ...]:
    if problem.callers is not None:
        return _of_callers(problem.callers)
    if problem.origin is None:
        return (UNKNOWN,) * len(problem)
    by_storage = _of_storages(problem.origin.graph)
    return tuple(by_storage.get(name, UNKNOWN) for name in problem.names)


def _of_callers(callers: Callers) -> tuple[Provenance, ...]:
    """The operation and the line of code that asked for each buffer of a recording."""
    provenances = [Provenance(caller.kind, maker=caller) for caller in callers.stacks.callers]
    return tuple(provenances[stack] if stack >= 0 else UNKNOWN for stack in callers.stack.tolist())


def ops_at(problem: Problem, step: int) -> tuple[Op, ...]:
    """The ops that run at `step`; none when the problem comes from no graph."""
    if problem.origin is None:
        return ()
    graph, schedule = problem.origin.graph, problem.origin.schedule
    return tuple(op for op, at in zip(graph.ops, schedule.step_of_op, strict=True) if at == step)


def _of_storages(graph: Graph) -> dict[str, Provenance]:
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    makers: dict[str, Op] = {}
    readers: dict[str, dict[str, None]] = {}
    roles = {storage.name: storage.role for storage in graph.storages}
    # A storage that the caller brings is made by no op, whatever view of it some op returns.
    brought = {name for name, role in roles.items() if role in (Role.INPUT, Role.CONSTANT)}
    for op in graph.ops:
        for name in op.outputs:
            if home[name] not in brought:
                makers.setdefault(home[name], op)
        for name in (*op.outputs, *op.inputs, *op.mutates):
            storage = home[name]
            if makers.get(storage) is not op:
                readers.setdefault(storage, {})[op.name] = None
    sharing: dict[str, list[int]] = {}
    for index, tensor in enumerate(graph.tensors):
        sharing.setdefault(tensor.storage, []).append(index)
    provenances = {}
    for storage, members in sharing.items():
        maker, first = makers.get(storage), graph.tensors[members[0]]
        provenances[storage] = Provenance(
            kind=maker.kind if maker else roles[storage].value,
            role=roles[storage],
            maker=maker,
            readers=tuple(readers.get(storage, ())),
            tensors=tuple(graph.tensors[index].name for index in members),
            shape=first.shape,
            dtype=first.dtype,
        )
    return provenances
