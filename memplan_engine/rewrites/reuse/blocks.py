"""Where the inputs of a concatenation lie in its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memplan_engine.graph import Op, Tensor


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
