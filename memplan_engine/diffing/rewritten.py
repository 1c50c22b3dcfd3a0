"""What a rewrite did, where both sides of a diff are the same ops: moved, written in place, joined without
copies, gradients let go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from memplan_engine.graph import Graph, Op
from memplan_engine.plan import Plan
from memplan_engine.problem import Origin
from memplan_engine.schedule import moved


class Rewrote(StrEnum):
    """What became of an op."""

    MOVED = "moved"
    IN_PLACE = "written in place"
    JOINED = "joined without copies"
    RETURNED_NOT = "no longer returned"


@dataclass(frozen=True, slots=True)
class RewrittenOp:
    """One op that a rewrite changed. `before` and `after` are its steps; `nbytes` are those of what it makes,
    `tensor` names that."""

    op: Op
    what: Rewrote
    before: int
    after: int
    tensor: str
    nbytes: int


def rewritten_ops(base: Plan, head: Plan) -> tuple[RewrittenOp, ...]:
    """The ops of `head` that a rewrite of `base` changed, in the order in which they run there, those of each
    kind together; () where nothing is, or where the two are not the same ops."""
    before, after = base.problem.origin, head.problem.origin
    if before is None or after is None:
        return ()
    kinds = [sorted((op.name, op.kind) for op in each.graph.ops) for each in (before, after)]
    if kinds[0] != kinds[1]:
        return ()
    steps = [_steps(before), _steps(after)]
    order = [sorted(each, key=each.__getitem__) for each in steps]
    ops = {op.name: op for op in after.graph.ops}
    nbytes = {tensor.name: tensor.nbytes for tensor in after.graph.tensors}

    def row(name: str, what: Rewrote, tensor: str = "") -> RewrittenOp:
        made = tensor or next(iter(ops[name].outputs), "")
        return RewrittenOp(ops[name], what, steps[0][name], steps[1][name], made, nbytes.get(made, 0))

    return (
        *(row(name, Rewrote.MOVED) for name in moved(order[0], order[1])),
        *(row(name, Rewrote.IN_PLACE) for name in _in_place(before.graph, after.graph)),
        *(row(name, Rewrote.JOINED) for name in _joined(before.graph, after.graph)),
        *(row(name, Rewrote.RETURNED_NOT, tensor) for name, tensor in _let_go(before.graph, after.graph)),
    )


def _steps(origin: Origin) -> dict[str, int]:
    """The step of each op; of several at one step those that stand first in the graph come first."""
    return dict(
        sorted(
            zip((op.name for op in origin.graph.ops), origin.schedule.step_of_op, strict=True),
            key=lambda pair: pair[1],
        )
    )


def _in_place(before: Graph, after: Graph) -> Iterator[str]:
    wrote = {op.name: set(op.mutates) for op in before.ops}
    return (op.name for op in after.ops if not set(op.mutates) <= wrote[op.name])


def _joined(before: Graph, after: Graph) -> Iterator[str]:
    """Ops whose inputs lie inside what they make, and did not."""
    was, now = ({tensor.name: tensor.storage for tensor in graph.tensors} for graph in (before, after))
    wrote = set(_in_place(before, after))
    for op in after.ops:
        for output in op.outputs if op.name not in wrote else ():
            if any(now[name] == now[output] and was[name] != was[output] for name in op.inputs):
                yield op.name
                break


def _let_go(before: Graph, after: Graph) -> Iterator[tuple[str, str]]:
    """The tensors that are not returned any more, each with the op that makes it."""
    maker = {name: op.name for op in after.ops for name in op.outputs}
    returned = set(after.outputs)
    return ((maker[name], name) for name in before.outputs if name not in returned and name in maker)
