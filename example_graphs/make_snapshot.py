"""Writes cuda_snapshot.pickle: a caching allocator in a hundred lines that records itself as PyTorch's does,
and a training loop on it that dies of fragmentation. Run with `python -m memplan_examples.make_snapshot`.

Synthesised to the format of `torch.cuda.memory._dump_snapshot`; no GPU took part.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

BLOCK, SEGMENT, BASE = 512, 2 << 20, 0x7F00_0000_0000
GAP = 7 * SEGMENT
"""Between two segments: addresses that nobody has."""
LIBRARY = "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"


@cache
def frame(line: int, name: str = "forward", filename: str = "/home/me/train.py") -> dict[str, Any]:
    """One call of a stack."""
    return {"name": name, "filename": filename, "line": line}


@cache
def stack(line: int, op: str = "addmm") -> list[dict[str, Any]]:
    """As they are recorded: C++ within, the user's code without."""
    return [
        frame(0, "torch::unwind::unwind()", "??"),
        frame(0, "at::detail::empty_cuda(c10::ArrayRef<long>)", "??"),
        frame(0, f"at::_ops::{op}::call(at::Tensor const&)", "??"),
        frame(125, "forward", LIBRARY),
        frame(line),
        frame(3, "<module>"),
    ]


def in_pages(need: int) -> int:
    """A segment of as many pages as it takes."""
    return -(-need // SEGMENT) * SEGMENT


def as_pytorch(need: int) -> int:
    """As PyTorch's caching allocator sizes its segments."""
    if need <= SEGMENT // 2:
        return SEGMENT
    return 10 * SEGMENT if need < 5 * SEGMENT else in_pages(need)


@dataclass
class Block:
    """A piece of a segment, in use or free."""

    address: int
    size: int
    asked: int = 0
    in_use: bool = False
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Allocator:
    """First fit in the segments of a stream; a segment for what fits nowhere. `limit` bytes in all."""

    limit: int = 1 << 40
    segment_of: Callable[[int], int] = in_pages
    expandable: bool = False
    requested: bool = True
    completed: bool = True
    device: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    segments: dict[int, list[Block]] = field(default_factory=dict)
    stream_of: dict[int, int] = field(default_factory=dict)
    pool_of: dict[int, tuple[int, int]] = field(default_factory=dict)
    next_address: int = BASE

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(block.size for blocks in self.segments.values() for block in blocks)

    def note(self, action: str, size: int, stream: int, frames: list[dict[str, Any]], **more: int) -> None:
        """Record an event."""
        event = {"action": action, **more, "size": size, "stream": stream}
        self.events.append(event | {"time_us": 1_000_000 + 10 * len(self.events), "frames": frames})

    def alloc(
        self,
        size: int,
        frames: list[dict[str, Any]] | None = None,
        stream: int = 0,
        pool: tuple[int, int] = (0, 0),
    ) -> int:
        """The address of `size` new bytes; −1, and an event, when there is no room."""
        frames = stack(10) if frames is None else frames
        need = max(BLOCK, -(-size // BLOCK) * BLOCK)
        for segment, blocks in self.segments.items():
            if self.stream_of[segment] != stream or self.pool_of[segment] != pool:
                continue
            for place, block in enumerate(blocks):
                if not block.in_use and block.size >= need:
                    return self._take(blocks, place, size, need, frames, stream)
        whole = self.segment_of(need)
        if self.reserved + whole > self.limit:
            self.empty_cache()
        if self.reserved + whole > self.limit:
            self.note("oom", size, stream, frames, device_free=self.limit - self.reserved)
            return -1
        segment, self.next_address = self.next_address, self.next_address + whole + GAP
        self.segments[segment] = [Block(segment, whole)]
        self.stream_of[segment], self.pool_of[segment] = stream, pool
        self.note("segment_map" if self.expandable else "segment_alloc", whole, stream, frames, addr=segment)
        return self._take(self.segments[segment], 0, size, need, frames, stream)

    def _take(
        self, blocks: list[Block], place: int, size: int, need: int, frames: list[dict[str, Any]], stream: int
    ) -> int:
        block = blocks[place]
        if block.size > need:
            blocks.insert(place + 1, Block(block.address + need, block.size - need))
        blocks[place] = Block(block.address, need, size, True, frames)
        self.note("alloc", size, stream, frames, addr=block.address)
        return block.address

    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""
        for segment, blocks in self.segments.items():
            for place, block in enumerate(blocks):
                if block.address == address and block.in_use:
                    block.in_use = False
                    for action in ("free_requested", "free_completed"):
                        if getattr(self, action.removeprefix("free_")):
                            self.note(action, block.asked, self.stream_of[segment], stack(99), addr=address)
                    self._merge(blocks, place)
                    return
        raise AssertionError(f"nothing in use at {address}")

    def _merge(self, blocks: list[Block], place: int) -> None:
        for low in (place, place - 1):
            if 0 <= low < len(blocks) - 1 and not blocks[low].in_use and not blocks[low + 1].in_use:
                blocks[low : low + 2] = [Block(blocks[low].address, blocks[low].size + blocks[low + 1].size)]

    def empty_cache(self) -> None:
        """Give segments back of which nothing is in use."""
        for segment, blocks in list(self.segments.items()):
            if len(blocks) == 1 and not blocks[0].in_use:
                action = "segment_unmap" if self.expandable else "segment_free"
                self.note(action, blocks[0].size, self.stream_of[segment], [], addr=segment)
                del self.segments[segment]

    def snapshot(self, most_events: int | None = None) -> dict[str, Any]:
        """What is there now, with the last `most_events` events."""
        events = self.events if most_events is None else self.events[len(self.events) - most_events :]
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device)]
        return {
            "segments": [self._segment(address, blocks) for address, blocks in self.segments.items()],
            "device_traces": [*traces, events],
            "allocator_settings": {"expandable_segments": self.expandable},
            "external_annotations": [],
        }

    def _segment(self, address: int, blocks: list[Block]) -> dict[str, Any]:
        return {
            "device": self.device,
            "address": address,
            "total_size": sum(block.size for block in blocks),
            "stream": self.stream_of[address],
            "segment_type": "large",
            "segment_pool_id": self.pool_of[address],
            "is_expandable": self.expandable,
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.asked,
                    "state": "active_allocated" if block.in_use else "inactive",
                    "frames": block.frames,
                }
                for block in blocks
            ],
        }


def write_snapshot(path: Path, value: Any, protocol: int = 4) -> Path:
    """Write a snapshot as PyTorch does."""
    path.write_bytes(pickle.dumps(value, protocol))
    return path


SOURCE = "/home/me/train.py"
LAYERS, WIDTH, BATCH = 6, 768, 8
UNWIND = frame(0, "torch::unwind::unwind()", "??")


@cache
def tensor(line: int, name: str, op: str, file: str = SOURCE) -> list[dict[str, Any]]:
    """The stack of a tensor that `op` makes in line `line`."""
    inside = [
        frame(0, "torch::unwind::unwind()", "??"),
        frame(0, f"at::_ops::{op}::call(at::Tensor const&)", "??"),
    ]
    return [*inside, frame(line, name, file), frame(88, "<module>", SOURCE)]


@cache
def backward(node: str, op: str) -> list[dict[str, Any]]:
    """The stack of what backward allocates: a thread of C++ alone."""
    names = (
        f"at::_ops::{op}::call(at::Tensor const&)",
        f"torch::autograd::generated::{node}::apply(variable_list&&)",
    )
    return [frame(0, "torch::unwind::unwind()", "??"), *(frame(0, name, "??") for name in names)]


def parameters(allocator: Allocator) -> None:
    """Weights in 16 bits, and Adam's two moments in 32."""
    for _ in range(LAYERS):
        for count in (3 * WIDTH * WIDTH, WIDTH * WIDTH, 4 * WIDTH * WIDTH, 4 * WIDTH * WIDTH):
            allocator.alloc(2 * count, tensor(12, "to", "_to_copy"))
            for _ in range(2):
                allocator.alloc(4 * count, tensor(15, "step", "zeros_like"))


def forward(allocator: Allocator, tokens: int) -> tuple[list[int], bool]:
    """The activations that are kept, and whether there was room for all."""
    rows = BATCH * tokens
    kept: list[int] = []
    for _ in range(LAYERS):
        sizes = (
            (tensor(31, "attention", "addmm"), 2 * rows * 3 * WIDTH, True),
            (tensor(33, "attention", "baddbmm"), 2 * rows * tokens * 12, True),
            (tensor(34, "attention", "_softmax"), 2 * rows * tokens * 12, True),
            (tensor(36, "attention", "bmm"), 2 * rows * WIDTH, False),
            (tensor(41, "mlp", "addmm"), 2 * rows * 4 * WIDTH, True),
            (tensor(42, "mlp", "gelu"), 2 * rows * 4 * WIDTH, True),
            (tensor(43, "mlp", "addmm"), 2 * rows * WIDTH, True),
        )
        for frames, nbytes, stays in sizes:
            address = allocator.alloc(nbytes, frames)
            if address < 0:
                return kept, False
            if stays:
                kept.append(address)
            else:
                allocator.free(address)
    return kept, True


def step(allocator: Allocator, tokens: int) -> bool:
    """One training step; whether it came through."""
    kept, whole = forward(allocator, tokens)
    gradients = []
    for address in reversed(kept):
        if whole:
            scratch = allocator.alloc(2 * BATCH * tokens * WIDTH, backward("AddmmBackward0", "mm"))
            bucket = allocator.alloc(2 * WIDTH * WIDTH, tensor(61, "reduce", "empty"), stream=7)
            whole = scratch >= 0 and bucket >= 0
            gradients += [bucket] if bucket >= 0 else []
            if scratch >= 0:
                allocator.free(scratch)
        allocator.free(address)
    for address in gradients:
        allocator.free(address)
    return whole


def train() -> Allocator:
    """Sequences grow from step to step: what was cut for the shorter ones no more fits the longer ones."""
    allocator = Allocator(limit=1450 << 20, segment_of=as_pytorch)
    parameters(allocator)
    for tokens in (128, 200, 320, 400, 456, 512):
        if not step(allocator, tokens):
            break
    return allocator


def main() -> None:
    """Write the file."""
    allocator = train()
    begun = next(n for n, event in enumerate(allocator.events) if event["frames"][2]["line"] == 31)
    write_snapshot(
        Path(__file__).with_name("cuda_snapshot.pickle"), allocator.snapshot(len(allocator.events) - begun)
    )


if __name__ == "__main__":
    main()
