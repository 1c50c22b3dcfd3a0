"""Elementwise ops write into an input that nobody reads afterwards."""

from __future__ import annotations

from dataclasses import replace

from memplan_engine.graph import PRODUCED, Graph, Op, Role, Storage, Tensor
from memplan_engine.rewrites.reuse.kinds import has_in_place_form, is_elementwise
from memplan_engine.rewrites.reuse.reused import (
    Draft,
    Kept,
    Reason,
    Reused,
    Rewrite,
    covers,
    in_order,
    same_layout,
    written_by,
)
from memplan_engine.schedule import Schedule, sequential

_ORDER = tuple(Reason)


def write_in_place(graph: Graph, schedule: Schedule | None = None) -> Reused:
    """`graph` with the output of every elementwise op in the storage of an input that dies there.

    What the JIT planner's reviewers asked for as automatic in-placing (`add` → `add_`). The input has the
    output's shape, element size and strides and covers its storage, which is an activation that nothing else
    touches at this step or later, through any view; the output covers a storage of its own, of the same
    bytes. Chains go through: the storage keeps the name of the first tensor. Ops are gone through in the
    order of `schedule` (one a step by default); of several inputs that would do, the first is taken.

    The peak never rises: two storages of equal bytes become one that lives as long as both did. The arena
    of a plan may, in theory: a buffer that lives longer can be harder to place.
    """
    schedule = schedule or sequential(graph)
    draft = _Draft(graph, schedule)
    rewrites: list[Rewrite] = []
    kept: list[Kept] = []
    ops = list(graph.ops)
    for index in in_order(schedule):
        op = ops[index]
        # A dropout that is off may be no more than a view, and write nothing.
        if not (is_elementwise(op.kind) and op.outputs and written_by(op, draft.home)):
            continue
        outcome = draft.consider(index)
        if isinstance(outcome, Kept):
            kept.append(outcome)
        else:
            rewrites.append(outcome)
            ops[index] = replace(op, mutates=(*op.mutates, outcome.tensor))
    written = replace(draft.graph(), ops=tuple(ops))
    return Reused(written, schedule, in_place=tuple(rewrites), kept=tuple(kept))


DOUBTS = frozenset({Reason.NO_OUT_VARIANT, Reason.WHOLE, Reason.SYMBOLIC, Reason.ALIGNMENT})
"""What stands in the way only as far as the graph tells, beside layouts that it does not tell."""


def take_over(graph: Graph, *, doubts: bool = True) -> dict[int, tuple[str, ...]]:
    """By index of an op, the storages that it may write its output over in an order in which it is the last
    to touch them. What `write_in_place` merges in some order, before it merges anything; without `doubts`
    also what it leaves alone for one of the DOUBTS or since the graph does not tell a layout."""
    draft = _Draft(graph, sequential(graph))
    if not doubts:
        draft.unknown, draft.despite = frozenset(), DOUBTS
    table: dict[int, tuple[str, ...]] = {}
    for index, op in enumerate(graph.ops):
        if not (is_elementwise(op.kind) and op.outputs and written_by(op, draft.home)):
            continue
        if draft.op_reason(op, index) is None:
            output = draft.tensors[op.outputs[0]]
            fit = [name for name in op.inputs if draft.lasting_reason(index, name, output) is None]
            if fit:
                table[index] = tuple(dict.fromkeys(draft.home[name] for name in fit))
    return table


class _Draft(Draft):
    """Storages of equal bytes become one. `despite`: reasons that count for nothing."""

    despite: frozenset[Reason] = frozenset()

    def consider(self, index: int) -> Rewrite | Kept:
        """Let the op at `index` write into its first input that will do, or say why none will."""
        op, step = self.source.ops[index], self.schedule.step_of_op[index]
        output = self.tensors[op.outputs[0]]
        reasons: list[tuple[Reason, str, str]] = []
        obstacle = self.op_reason(op, index)
        if obstacle is not None:
            reasons.append((obstacle, "", ""))
        for name in dict.fromkeys(op.inputs) if obstacle is None else ():
            refused = self._input_reason(index, name, output)
            if refused is None:
                target = self.home[name]
                merged = self.merge(self.home[output.name], target)
                # The output may be one that the graph returns; the storage then is, too.
                self.storages[target] = replace(self.storages[target], role=merged.role)
                return Rewrite(op.name, op.kind, step, name, output.name, self.storages[target].nbytes)
            reasons.append((refused[0], name, refused[1]))
        # Of several inputs the one is named that came nearest.
        reason, tensor, other = max(
            reasons, key=lambda refusal: _ORDER.index(refusal[0]), default=(Reason.NO_TENSOR, "", "")
        )
        nbytes = 0 if reason is Reason.ALREADY else output.nbytes
        return Kept(op.name, op.kind, step, tensor, output.name, nbytes, reason, other)

    def op_reason(self, op: Op, index: int) -> Reason | None:
        output = self.tensors[op.outputs[0]]
        storage = self.storages[self.home[output.name]]
        if op.mutates or output.name not in written_by(op, self.home):
            return Reason.ALREADY
        if op.is_of_torch:
            return Reason.OF_TORCH
        if len(op.outputs) > 1:
            return Reason.SEVERAL_OUTPUTS
        no_variant = op.out_variant is False and not has_in_place_form(op.kind)
        if no_variant and Reason.NO_OUT_VARIANT not in self.despite:
            return Reason.NO_OUT_VARIANT
        starts_here = self.of[storage.name][0].op == index
        own = storage.role in PRODUCED and storage.nbytes > 0
        if not starts_here or not own or not covers(output, storage):
            return Reason.PART_OF_STORAGE
        return None

    def _input_reason(self, index: int, name: str, output: Tensor) -> tuple[Reason, str] | None:
        """Why the op may not write into `name`, and what stands in the way; None when it may."""
        return self.lasting_reason(index, name, output) or self._shared_reason(index, name)

    def lasting_reason(self, index: int, name: str, output: Tensor) -> tuple[Reason, str] | None:
        """Why the op may never write into `name`, however early others read it, and what stands in the way;
        None when it may."""
        tensor = self.tensors[name]
        storage = self.storages[self.home[name]]
        own = self.storages[self.home[output.name]]
        for reason, holds in (
            (Reason.INPUT, storage.role is Role.INPUT),
            (Reason.CONSTANT, storage.role is Role.CONSTANT),
            (Reason.RETURNED, storage.role is Role.OUTPUT),
            (Reason.SHAPE, tensor.shape != output.shape),
            (Reason.ELEMENT_SIZE, tensor.nbytes != output.nbytes),
            (Reason.STRIDES, not same_layout(tensor, output) or name in self.unknown),
            (Reason.WHOLE, not covers(tensor, storage) or storage.nbytes != own.nbytes),
            (Reason.SYMBOLIC, storage.formula != own.formula or tensor.formulas != output.formulas),
            (Reason.ALIGNMENT, not _aligned_for(storage, own)),
        ):
            if holds and reason not in self.despite:
                return reason, ""
        for other in self.source.ops[index].inputs:
            if self.home[other] == storage.name and not self._same_bytes(name, other):
                return Reason.TWICE, other
        return None

    def _shared_reason(self, index: int, name: str) -> tuple[Reason, str] | None:
        """Who still needs what `name` shows; None when nobody does."""
        step = self.schedule.step_of_op[index]
        for touch in self.since(self.home[name], step):
            if touch.op == index:
                continue
            who = self.source.ops[touch.op].name
            if touch.step == step:
                return Reason.SAME_STEP, who
            return (Reason.READ_LATER if touch.tensor == name else Reason.VIEW_READ_LATER), who
        return None

    def _same_bytes(self, one: str, other: str) -> bool:
        """Whether element i of both tensors is the same bytes."""
        first, second = self.tensors[one], self.tensors[other]
        same = (first.shape, first.nbytes, first.offset) == (second.shape, second.nbytes, second.offset)
        return one == other or (same and same_layout(first, second) and other not in self.unknown)


def _aligned_for(storage: Storage, other: Storage) -> bool:
    """Whether an offset that suits `storage` always suits `other`; 0 is the plan's own alignment."""
    if storage.alignment == other.alignment or other.alignment == 1:
        return True
    return bool(other.alignment and storage.alignment and storage.alignment % other.alignment == 0)
