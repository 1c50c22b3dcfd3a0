"""Where the inputs of a concatenation lie in its output, and which bytes of that are needed when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memplan_engine.graph import Op, Tensor
from memplan_engine.problem import Gap, Ints


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

    def shifted(self, nbytes: int) -> Part:
        """The same part of a storage that lies `nbytes` bytes inside another."""
        return Part(self.start, self.end, self.low + nbytes, self.high + nbytes)


def hulls(parts: Sequence[Part]) -> list[Gap]:
    """The bytes needed over time, from the lowest to the highest part alive: one Gap for each stretch of
    steps in which they stay the same, in order, from the first start to the last end."""
    edges = sorted({edge for part in parts for edge in (part.start, part.end)})
    stretches: list[Gap] = []
    for start, end in pairwise(edges):
        alive = [part for part in parts if part.start <= start and end <= part.end]
        low = min((part.low for part in alive), default=0)
        high = max((part.high for part in alive), default=0)
        last = stretches[-1] if stretches else None
        if last is not None and (last.low, last.high) == (low, high):
            stretches[-1] = Gap(last.start, end, low, high)
        else:
            stretches.append(Gap(start, end, low, high))
    return stretches


def windows_of(parts: Sequence[Part], nbytes: int) -> tuple[Gap, ...]:
    """The stretches in which less than all `nbytes` bytes of a storage are needed."""
    return tuple(gap for gap in hulls(parts) if (gap.low, gap.high) != (0, nbytes))


def add_load(load: Ints, parts: Sequence[Part], sign: int) -> None:
    """Add to `load`, bytes a step, what a storage of these parts holds (take it away with `sign` −1)."""
    for gap in hulls(parts):
        load[gap.start : gap.end] += sign * (gap.high - gap.low)


def empty_load(steps: int) -> Ints:
    """No bytes at any of `steps` steps."""
    return np.zeros(steps, dtype=np.int64)
