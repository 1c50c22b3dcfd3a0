"""All that a model holds on its device over the steps, by what it is kept for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memplan_engine.analysis.peak_tree import category_of_storage
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import live_bytes, load_of, shared_by_step, workspace_of

CATEGORIES = ("weights", "optimizer state", "inputs", "gradients", "activations", "temporaries")
"""From the ground up: what lives longest is lowest."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMemory:
    """`live[category]` (bytes, int64) for the stretches of steps that begin at `start`; the last ends at
    `end`. Categories without a byte are left out. What the caller brings (weights, state, inputs) is there at
    every step, and lies beside the arena unless it was planned."""

    start: Ints
    end: int
    live: dict[str, Ints]

    @property
    def total(self) -> Ints:
        """All together, bytes."""
        total = np.zeros(len(self.start), np.int64)
        for nbytes in self.live.values():
            total += nbytes
        return total

    @property
    def peak_bytes(self) -> int:
        """The most that is held at one step."""
        return int(self.total.max(initial=0))


def on_device(problem: Problem) -> dict[str, int]:
    """Bytes of each category at the step at which all of them together are highest, the largest first; empty
    where there is no graph."""
    memory = problem.once(device_memory)
    if memory is None or not memory.live:
        return {}
    at = int(memory.total.argmax())
    held = {name: int(nbytes[at]) for name, nbytes in memory.live.items() if nbytes[at]}
    return dict(sorted(held.items(), key=lambda each: -each[1]))


def device_memory(problem: Problem) -> DeviceMemory | None:
    """What the graph behind `problem` holds at every step; None where there is no graph. O(n log n)."""
    if problem.origin is None:
        return None
    graph = problem.origin.graph
    category = category_of_storage(graph)
    load, scratch = load_of(problem), shared_by_step(problem)
    pieces, sections = load.pieces, load.sections
    size = pieces.high - pieces.low
    of_piece = np.array([CATEGORIES.index(category[name]) for name in problem.names], np.int64)[pieces.owner]
    at = np.array(sorted(scratch), np.int64)
    start = np.unique(np.concatenate([[0], sections.bounds[:-1], at, at + 1]).astype(np.int64))
    start = start[start < max(problem.steps, 1)]
    section = np.searchsorted(sections.bounds, start, side="right") - 1
    inside = (section >= 0) & (section < len(sections.bounds) - 1)
    planned = set(problem.names)
    outside = dict.fromkeys(CATEGORIES, 0)
    for storage in graph.storages:
        if storage.name not in planned and category[storage.name] in CATEGORIES[:3]:
            outside[category[storage.name]] += storage.nbytes
    live = {}
    for place, name in enumerate(CATEGORIES):
        of_sections = live_bytes(sections, np.where(of_piece == place, size, 0))
        live[name] = np.full(len(start), outside[name], np.int64)
        live[name][inside] += of_sections[section[inside]]
    live["temporaries"] += workspace_of(problem).unique
    live["temporaries"] += np.array([scratch.get(step, 0) for step in start.tolist()], np.int64)
    return DeviceMemory(start, problem.steps, {name: each for name, each in live.items() if each.any()})
