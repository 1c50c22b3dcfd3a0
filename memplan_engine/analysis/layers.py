"""The layers that run one after the other: stretches of steps of one module, at every depth of its path."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.graph import Graph
from memplan_engine.schedule import Schedule

MOST_DEPTHS = 6
MOST_LAYERS = 1_000
"""A depth with more layers than that, and those below it, are left out: nobody could read them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The steps `[start, end)` in which one module runs; `label` is its path without what all share."""

    label: str
    start: int
    end: int


def find_layers(graph: Graph, schedule: Schedule) -> tuple[tuple[Layer, ...], ...]:
    """The layers at each depth, the outermost first: of `transformer.h.0.mlp` first `h`, then `h.0`, then
    `h.0.mlp`. A depth that cuts no further than the one before is left out. Ops without a module belong to
    the layer before them. O(ops) a depth."""
    paths = _paths(graph, schedule)
    shared = _shared([path for _, path in paths])
    depths: list[tuple[Layer, ...]] = []
    for depth in range(shared + 1, shared + 1 + MOST_DEPTHS):
        layers = _cut(paths, shared, depth, schedule.steps)
        if len(layers) > MOST_LAYERS:
            break
        if not depths or len(layers) > len(depths[-1]):
            depths.append(layers)
    return tuple(depth for depth in depths if len(depth) > 1)


def _paths(graph: Graph, schedule: Schedule) -> list[tuple[int, tuple[str, ...]]]:
    """Step and module path of the first op of each step that stands in a module, in order of steps."""
    path_at: dict[int, tuple[str, ...]] = {}
    for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
        if op.module and step not in path_at:
            path_at[step] = tuple(op.module.split("."))
    return sorted(path_at.items())


def _shared(paths: list[tuple[str, ...]]) -> int:
    """How many segments all paths begin with that are longer than these; what stands above is no layer."""
    longest = [path for path in paths if len(path) > 1]
    shared = 0
    while longest and all(len(path) > shared + 1 for path in longest):
        if len({path[shared] for path in longest}) > 1:
            break
        shared += 1
    return shared


def _cut(paths: list[tuple[int, tuple[str, ...]]], shared: int, depth: int, steps: int) -> tuple[Layer, ...]:
    """A layer ends where another begins."""
    bounds: list[tuple[int, str]] = []
    for step, path in paths:
        inner = path[shared:depth] if len(path) > shared else path[-1:]
        label = ".".join(inner)
        if not bounds or bounds[-1][1] != label:
            bounds.append((step, label))
    ends = [*(step for step, _ in bounds[1:]), steps][: len(bounds)]
    return tuple(Layer(label, start, end) for (start, label), end in zip(bounds, ends, strict=True))
