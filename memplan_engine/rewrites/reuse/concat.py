"""Concatenation without copies: the inputs are made inside the output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from math import lcm

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.graph import PRODUCED, Graph, Op, Role, Storage, Tensor
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT, Unread, lifetimes
from memplan_engine.problem import Gap, Ints
from memplan_engine.rewrites.reuse.kinds import is_concat
from memplan_engine.rewrites.reuse.reused import (
    Draft,
    Kept,
    Reason,
    Reused,
    Rewrite,
    covers,
    in_order,
    is_contiguous,
)
from memplan_engine.schedule import Schedule, sequential


@dataclass(frozen=True, slots=True)
class Block:
    """The input `tensor` is the bytes `[low, high)` of the output."""

    tensor: str
    low: int
    high: int


def blocks_of(op: Op, tensors: Mapping[str, Tensor]) -> list[Block] | None:
    """The blocks of the concatenation `op` in the order of its inputs; None when they do not lie one behind
    another: a dimension before the axis is not 1, or the shapes are not those of a concatenation.

    The axis is read off the shapes: the one dimension in which the output differs. Inputs after the first
    that do not fit (a scalar axis given as a tensor) make it None as well.
    """
    output = tensors[op.outputs[0]]
    inputs = [tensors[name] for name in op.inputs]
    axis = _axis([tensor.shape for tensor in inputs], output.shape)
    if axis is None or any(size != 1 for size in output.shape[:axis]):
        return None
    if any(tensor.dtype != output.dtype for tensor in inputs):
        return None
    blocks, low = [], 0
    for tensor in inputs:
        blocks.append(Block(tensor.name, low, low + tensor.nbytes))
        low += tensor.nbytes
    return blocks if low == output.nbytes else None


def _axis(shapes: list[tuple[int, ...]], whole: tuple[int, ...]) -> int | None:
    """The concat axis; for a single input, which is only copied, 0. None when no axis gives `whole`."""
    if any(len(shape) != len(whole) for shape in shapes) or not whole:
        return None
    if len(shapes) == 1:
        return 0 if shapes[0] == whole else None
    for axis, size in enumerate(whole):
        rest = whole[:axis] + whole[axis + 1 :]
        if sum(shape[axis] for shape in shapes) == size and all(
            shape[:axis] + shape[axis + 1 :] == rest for shape in shapes
        ):
            return axis
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes `[low, high)` of a storage, needed in the steps `[start, end)`."""

    start: int
    end: int
    low: int
    high: int


def hulls(parts: Sequence[Part]) -> list[Gap]:
    """The bytes needed over time, from the lowest to the highest live part: one Gap for each stretch of
    steps in which they stay the same, in order, from the first start to the last end."""
    edges = sorted({edge for part in parts for edge in (part.start, part.end)})
    coming = sorted(parts, key=lambda part: part.start, reverse=True)
    lows: list[tuple[int, int]] = []
    highs: list[tuple[int, int]] = []
    stretches: list[Gap] = []
    for start, end in pairwise(edges):
        while coming and coming[-1].start <= start:
            part = coming.pop()
            heappush(lows, (part.low, part.end))
            heappush(highs, (-part.high, part.end))
        for heap in (lows, highs):
            while heap and heap[0][1] <= start:
                heappop(heap)
        low, high = (lows[0][0], -highs[0][0]) if lows and highs else (0, 0)
        last = stretches[-1] if stretches else None
        if last is not None and (last.low, last.high) == (low, high):
            stretches[-1] = Gap(last.start, end, low, high)
        else:
            stretches.append(Gap(start, end, low, high))
    return stretches


def add_load(load: Ints, parts: Sequence[Part], sign: int) -> None:
    """Add to `load`, bytes a step, what a storage of these parts holds (take it away with `sign` −1)."""
    for gap in hulls(parts):
        load[gap.start : gap.end] += sign * (gap.high - gap.low)


def place_concats(
    graph: Graph,
    schedule: Schedule | None = None,
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    unread: Unread = Unread.FREED,
) -> Reused:
    """`graph` with the inputs of concatenations inside their outputs, where that is sound and no loss.

    All dimensions before the concat axis are 1, so that every input is one block of the output. An input is
    a contiguous activation that covers its storage and begins at a multiple of its alignment (`alignment`
    bytes unless it asks for another); neither it nor the output is written again while the other is read.
    Inputs that do not qualify are copied as ever, beside those that do. Concatenations of concatenations
    nest; the ops are gone through in the order of `schedule` (one a step by default).

    The output's storage then is live from the first input's start, although at first only some blocks of
    it are needed: `windows` has the bytes between the lowest and the highest live block. Where the peak
    would rise all the same (blocks at both ends are made long before those between them), the
    concatenation is left alone.

    Raises
    ------
    InputError: `alignment` below 1.
    """
    if alignment < 1:
        raise InputError(graph.name, "alignment", str(alignment), "1 or more bytes")
    schedule = schedule or sequential(graph)
    draft = _Draft(graph, schedule, alignment, unread)
    rewrites: list[Rewrite] = []
    kept: list[Kept] = []
    for index in in_order(schedule):
        if is_concat(graph.ops[index].kind):
            joined, refused = draft.consider(index)
            rewrites += joined
            kept += refused
    return Reused(draft.graph(), schedule, concats=tuple(rewrites), kept=tuple(kept), windows=draft.windows())


class _Draft(Draft):
    """Storages move into one another. `parts` are those of each storage, `load` the bytes
    live at each step."""

    def __init__(self, graph: Graph, schedule: Schedule, alignment: int, unread: Unread) -> None:
        super().__init__(graph, schedule)
        self.alignment = alignment
        self.placed: set[str] = set()
        spans = lifetimes(graph, schedule, unread)
        self.parts = {
            storage.name: [Part(*spans[storage.name], 0, storage.nbytes)]
            for storage in graph.storages
            if storage.name in spans and storage.role in PRODUCED
        }
        self.load = np.zeros(max((end for _, end in spans.values()), default=0), dtype=np.int64)
        for parts in self.parts.values():
            add_load(self.load, parts, 1)

    def consider(self, index: int) -> tuple[list[Rewrite], list[Kept]]:
        """Place what can be placed of the inputs of the op at `index`."""
        op, step = self.source.ops[index], self.schedule.step_of_op[index]
        obstacle = self._op_reason(op, index)
        blocks = None if obstacle else blocks_of(op, self.tensors)
        if obstacle or blocks is None:
            output = self.tensors[op.outputs[0]] if op.outputs else None
            name, nbytes = (output.name, output.nbytes) if output else ("", 0)
            return [], [Kept(op.name, op.kind, step, "", name, nbytes, obstacle or Reason.AXIS)]
        kept: list[Kept] = []
        placed: list[Block] = []
        sharing = defaultdict[str, list[Block]](list)
        for block in blocks:
            sharing[self.tensors[block.tensor].storage].append(block)
        for block in blocks:
            refusal = self._block_reason(index, block, sharing)
            if refusal is None:
                placed.append(block)
            else:
                kept.append(self._keep(index, block, *refusal))
        if placed and not self._lowers(op.outputs[0], placed):
            return [], kept + [self._keep(index, block, Reason.PEAK) for block in placed]
        for block in placed:
            self._move(block, op.outputs[0])
        rewrites = [
            Rewrite(op.name, op.kind, step, block.tensor, op.outputs[0], block.high - block.low, block.low)
            for block in placed
        ]
        return rewrites, kept

    def windows(self) -> dict[str, tuple[Gap, ...]]:
        """Of every storage that something was moved into, the stretches in which less than all its bytes are
        needed."""
        windows = {}
        for name, parts in self.parts.items():
            whole = (0, self.storages[name].nbytes)
            own = tuple(gap for gap in hulls(parts) if (gap.low, gap.high) != whole)
            if len(parts) > 1 and own:
                windows[name] = own
        return windows

    def _keep(self, index: int, block: Block, reason: Reason, other: str = "") -> Kept:
        op, step = self.source.ops[index], self.schedule.step_of_op[index]
        size = block.high - block.low
        return Kept(op.name, op.kind, step, block.tensor, op.outputs[0], size, reason, other)

    def _op_reason(self, op: Op, index: int) -> Reason | None:
        """Why the op's output cannot hold its inputs, whatever they are."""
        if len(op.outputs) != 1 or not op.inputs:
            return Reason.NO_TENSOR if not op.inputs or not op.outputs else Reason.SEVERAL_OUTPUTS
        output = self.tensors[op.outputs[0]]
        storage = self.storages[output.storage]
        if storage.formula or any(self.tensors[name].formulas for name in (*op.inputs, output.name)):
            return Reason.SYMBOLIC
        touched_before = self.of[storage.name][0].op != index
        if touched_before or storage.name not in self.parts or op.mutates:
            return Reason.ALREADY
        if output.name in self.unknown or not (is_contiguous(output) and covers(output, storage)):
            return Reason.PART_OF_STORAGE
        return None

    def _block_reason(
        self, index: int, block: Block, sharing: Mapping[str, list[Block]]
    ) -> tuple[Reason, str] | None:
        """Why the input of `block` cannot be made there, and what stands in the way; None when it can.
        `sharing` are the blocks whose inputs share each storage."""
        tensor = self.tensors[block.tensor]
        storage = self.storages[tensor.storage]
        same = next((other.tensor for other in sharing[storage.name] if other is not block), "")
        touches = self.of[storage.name]
        producer = self.source.ops[touches[0].op] if touches else None
        for reason, holds, other in (
            (Reason.PLACED, storage.name in self.placed and not covers(tensor, storage), storage.name),
            (Reason.INPUT, storage.role is Role.INPUT, ""),
            (Reason.CONSTANT, storage.role is Role.CONSTANT, ""),
            (Reason.RETURNED, storage.role is Role.OUTPUT, ""),
            (Reason.STRIDES, not is_contiguous(tensor) or tensor.name in self.unknown, ""),
            (Reason.WHOLE, not covers(tensor, storage) or not storage.nbytes, ""),
            (Reason.SYMBOLIC, bool(storage.formula), ""),
            (Reason.ALIGNMENT, block.low % (storage.alignment or self.alignment) != 0, f"byte {block.low}"),
            (Reason.TWICE, bool(same), same),
            (Reason.NO_OUT_VARIANT, producer is not None and producer.out_variant is False, "by its maker"),
        ):
            if holds:
                return reason, other
        return self._written_reason(
            index, storage.name, self.tensors[self.source.ops[index].outputs[0]].storage
        )

    def _written_reason(self, index: int, block: str, whole: str) -> tuple[Reason, str] | None:
        """The storages `block` and `whole` become one at the op `index`: nobody may write to either while
        the other is still in use."""
        step = self.schedule.step_of_op[index]
        last_use = max((touch.step for touch in self.since(block, step)), default=step)
        for storage, until in ((block, None), (whole, last_use)):
            for touch in self.since(storage, step):
                if touch.writes and touch.op != index and (until is None or touch.step <= until):
                    return Reason.WRITTEN_LATER, self.source.ops[touch.op].name
        return None

    def _lowers(self, output: str, blocks: list[Block]) -> bool:
        """Whether the peak does not rise when `blocks` are made inside `output`."""
        whole = self.tensors[output].storage
        load: Ints = self.load.copy()
        for name in (whole, *(self.tensors[block.tensor].storage for block in blocks)):
            add_load(load, self.parts[name], -1)
        add_load(load, self._joined(whole, blocks), 1)
        if load.max(initial=0) > self.load.max(initial=0):
            return False
        self.load = load
        return True

    def _joined(self, whole: str, blocks: list[Block]) -> list[Part]:
        moved = [
            Part(part.start, part.end, part.low + block.low, part.high + block.low)
            for block in blocks
            for part in self.parts[self.tensors[block.tensor].storage]
        ]
        return [*self.parts[whole], *moved]

    def _move(self, block: Block, output: str) -> None:
        """Let the storage of `block` be a part of the storage of `output`."""
        source, target = self.tensors[block.tensor].storage, self.tensors[output].storage
        self.parts[target] = self._joined(target, [block])
        self.parts.pop(source)
        for name in self.members[source]:
            tensor = self.tensors[name]
            # Decided at these sizes, so the formula of the old offset does not hold any more.
            offset = tensor.offset + block.low
            self.tensors[name] = replace(tensor, offset=offset, layout=())
        merged = self.merge(source, target)
        self.storages[target] = _aligned(self.storages[target], merged, self.alignment)
        self.placed.add(target)


def _aligned(storage: Storage, block: Storage, alignment: int) -> Storage:
    """`storage`, at offsets that suit `block`, too, which begins at a multiple of its own alignment."""
    own = storage.alignment or alignment
    needed = lcm(own, block.alignment or alignment)
    return storage if needed == own else replace(storage, alignment=needed)
