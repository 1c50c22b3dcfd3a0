"""What ops take on a device, by a roofline: modelled from shapes and what its maker states, not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Tensor
from memplan_engine.op_kinds.ordered import plain_kind

HALVES = frozenset({"float16", "bfloat16"})
Shape = tuple[int, ...]
Flops = Callable[[list[Shape], list[Shape]], int]
"""Floating-point operations by the shapes of inputs and of outputs."""


class OpWork(NamedTuple):
    """What an op does: its floating-point operations, those of 16-bit numbers or not, and the bytes of the
    tensors that it reads and makes."""

    flops: int
    nbytes: int
    halves: bool = False

    def seconds(self, gpu: Accelerator) -> float:
        """The longer of two times (the roofline of Williams, Waterman and Patterson, 2009): the operations at
        the device's rate for their type, and the bytes at the bandwidth of its memory."""
        rate = gpu.speed.flops16 if self.halves else gpu.speed.flops32
        return max(self.flops / rate, self.nbytes / gpu.speed.bandwidth)


@dataclass(frozen=True, slots=True)
class OpTimes:
    """What the ops of a graph take, by name, in seconds, and `of` what these times are, in words. What is
    proved with them holds for them alone. `host_bandwidth` bytes a second are copied to the host beside the
    ops, and as many back, as `host_of` says in words; None where nobody knows."""

    seconds: Mapping[str, float]
    of: str
    measured: bool = False
    gpu: Accelerator | None = None
    """The device that models them; None for times that were measured."""
    host_bandwidth: float | None = None
    host_of: str = ""

    @property
    def with_copies(self) -> str:
        """What the times of ops and of copies are, in words."""
        speed = f"{(self.host_bandwidth or 0) / 1e9:,.4g} GB/s"
        return f"{self.of}; copies to the host and back, modelled: {speed} each way{self.host_of}"

    def of_ops(self, graph: Graph) -> list[float]:
        """The times of the ops of `graph`, in their order.

        Raises
        ------
        InputError: an op of which there is none.
        """
        if missing := next((op.name for op in graph.ops if op.name not in self.seconds), None):
            expected = f"a time for each of its {len(graph.ops):,} ops"
            raise InputError(self.of, missing, f"no time of that op of {graph.name}", expected)
        return [self.seconds[op.name] for op in graph.ops]

    def of_rewrite(self, graph: Graph) -> list[float] | None:
        """What the ops of another graph take, in their order, as they are modelled; None where these times
        were measured, and say nothing of ops that did not run."""
        return None if self.gpu is None else op_seconds(graph, self.gpu)


def modelled_times(graph: Graph, gpu: Accelerator) -> OpTimes:
    """What the ops of `graph` take on `gpu` by its roofline: `op_seconds`."""
    names = (op.name for op in graph.ops)
    words = f"modelled: roofline of {gpu.full_name} ({gpu.speed.source})"
    times = dict(zip(names, op_seconds(graph, gpu), strict=True))
    speed = gpu.speed
    host = f" ({speed.host_source})"
    return OpTimes(times, words, gpu=gpu, host_bandwidth=speed.host_bandwidth, host_of=host)


def op_seconds(graph: Graph, gpu: Accelerator) -> list[float]:
    """Of each op of `graph` the time that its work takes on `gpu`; views take none. O(ops)."""
    return [work.seconds(gpu) for work in op_work(graph)]


def op_work(graph: Graph) -> list[OpWork]:
    """What each op of `graph` does; views do nothing."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    return [_work(op, tensors) for op in graph.ops]


def _work(op: Op, tensors: Mapping[str, Tensor]) -> OpWork:
    read = [tensors[name] for name in (*op.inputs, *op.mutates)]
    made = [tensors[name] for name in op.outputs]
    if not op.mutates and {each.storage for each in made} <= {each.storage for each in read}:
        return OpWork(0, 0)
    moved = sum(tensor.nbytes for tensor in {each.name: each for each in (*read, *made)}.values())
    return OpWork(op_flops(op, tensors), moved, bool(read) and read[0].dtype in HALVES)


def op_flops(op: Op, tensors: Mapping[str, Tensor]) -> int:
    """Floating-point operations of products of matrices, convolutions and attention, as torch's own counter
    (torch.utils.flop_counter) has them: two for a product and its sum; 0 of all other ops, whose bytes take
    longer."""
    count = _FLOPS.get(plain_kind(op.kind))
    shapes = [tensors[name].shape for name in op.inputs]
    made = [tensors[name].shape for name in op.outputs]
    return 0 if count is None or not shapes or not made else count(shapes, made)


def _product(read: list[Shape], made: list[Shape]) -> int:
    return 2 * prod(made[0]) * read[0][-1] if read[0] else 0


def _added(read: list[Shape], made: list[Shape]) -> int:
    """The first input is what is added."""
    return _product(read[1:], made) if len(read) > 2 else 0


def _convolution(read: list[Shape], made: list[Shape]) -> int:
    return 2 * prod(made[0]) * prod(read[1][1:]) if len(read) > 1 else 0


def _convolution_backward(read: list[Shape], made: list[Shape]) -> int:
    """One of the gradients of input and weight each takes as much as the forward pass."""
    if len(read) < 3:
        return 0
    gradients = sum(shape in (read[1], read[2]) for shape in made)
    return gradients * 2 * prod(read[0]) * prod(read[2][1:])


def _attention(read: list[Shape], made: list[Shape]) -> int:
    query, key, value = read[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward(read: list[Shape], made: list[Shape]) -> int:
    """Scores again, and a product for the gradient of each of scores, query, key and value."""
    _, query, key, value = read[:4]
    return 2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1])


_FLOPS: dict[str, Flops] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "linear"), _product),
    **dict.fromkeys(("addmm", "baddbmm"), _added),
    **dict.fromkeys(("convolution", "conv1d", "conv2d", "conv3d"), _convolution),
    "convolutionbackward": _convolution_backward,
    **{f"scaleddotproduct{kind}attention": _attention for kind in ("", "flash", "efficient", "cudnn")},
    "scaleddotproductflashattentionforcpu": _attention,
    **{
        f"scaleddotproduct{kind}backward": _attention_backward
        for kind in ("flashattention", "efficientattention", "cudnnattention", "flashattentionforcpu")
    },
}
