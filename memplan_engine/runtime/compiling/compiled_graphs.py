"""What became of each graph that Dynamo gave the backend, for whoever asks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from memplan_engine.units import count_of, format_bytes, format_percent

KEPT = 1_000
"""Reports that are kept, the latest of them."""


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A graph of Dynamo's, by its compile id and its first line of the user's code, and what became of it.

    `peak_before` are the live bytes at its worst step as AOTAutograd traced it, `peak_after` as it runs now;
    inputs and weights count in neither, what the caller is given and, of a training graph, the gradients of
    that do. `saved_bytes` go from the forward to the backward pass, without inputs and weights. `again` ops
    run again, for `extra_seconds` of the `seconds` that all take once, modelled. `capacity` was asked for;
    `least_bytes`, where no schedule was found within it, is what every schedule needs, proved. `reason` says
    why the graph runs as Dynamo gave it, and "" where it does not; then no figure is known.
    """

    name: str
    training: bool = False
    ops: int = 0
    peak_before: int = 0
    peak_after: int = 0
    saved_bytes: int = 0
    again: int = 0
    extra_seconds: float = 0.0
    seconds: float = 0.0
    capacity: int | None = None
    least_bytes: int = 0
    reason: str = ""

    @property
    def extra(self) -> float:
        """The time that ops run again, as a share of what all take once."""
        return self.extra_seconds / self.seconds if self.seconds else 0.0

    @property
    def is_within(self) -> bool:
        """Whether it keeps to the capacity; True where none was asked for."""
        return not self.reason and (self.capacity is None or self.peak_after <= self.capacity)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: runs as it is: {self.reason}"
        kind = "training" if self.training else "inference"
        text = f"{self.name}: {kind}, {count_of(self.ops, 'op')}, "
        text += f"{format_bytes(self.peak_before)} → {format_bytes(self.peak_after)} live"
        if self.again:
            text += f", {self.again} run again, +{format_percent(self.extra)} time (modelled)"
        return text


_compiled: deque[CompiledGraph] = deque(maxlen=KEPT)


def compiled_graphs() -> tuple[CompiledGraph, ...]:
    """The graphs that the backend was given in this process, the latest last."""
    return tuple(_compiled)


def note_compiled(graph: CompiledGraph) -> None:
    """Keep `graph` for `compiled_graphs`."""
    _compiled.append(graph)
