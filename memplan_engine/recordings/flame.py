"""What is live at a step by call stack: a tree of calls with their bytes, and the stacks behind one line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from memplan_engine.callers import Frame, only_allocates
from memplan_engine.problem import Problem
from memplan_engine.recordings.cost import by_stack

ROOT = -1


@dataclass(frozen=True, slots=True)
class Call:
    """A call on the way to what is live: its place in the tree is below the call `parent` (its index, ROOT
    for the outermost), its `nbytes` and `count` are those of all buffers asked for from within it."""

    frame: Frame
    parent: int
    nbytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Stack:
    """The calls, innermost first, from which `count` buffers of `nbytes` together were asked for."""

    frames: tuple[Frame, ...]
    nbytes: int
    count: int


def stacks_at(problem: Problem, step: int, label: str | None = None) -> tuple[Stack, ...]:
    """The stacks of what is live at `step`, the most bytes first; only of the line `label` if one is given.
    What was recorded without a stack has no frames."""
    stacks, numbers = by_stack(problem, step)
    found = [
        Stack(stacks.frames_of(number), nbytes, count)
        for number, nbytes, count in numbers
        if label is None or stacks.caller(number).label == label
    ]
    return tuple(sorted(found, key=lambda stack: -stack.nbytes))


def calls_at(problem: Problem, step: int, least_share: float = 0.0) -> tuple[Call, ...]:
    """What is live at `step` as a tree of calls, outermost first: each call stands behind its parent, those
    of one parent by falling bytes. Left out are calls below `least_share` of all bytes, those that
    only allocate, and what has no stack: the calls of one parent sum to at most its bytes. O(frames)."""
    stacks, found = by_stack(problem, step)
    # A node is known by its parent and its frame: index, bytes, buffers.
    nodes: dict[tuple[int, int], list[int]] = {}
    shown = [not only_allocates(frame) for frame in stacks.frames]
    for number, nbytes, count in found:
        parent = ROOT
        for frame in filter(shown.__getitem__, reversed(stacks.stacks[number] if number >= 0 else ())):
            node = nodes.setdefault((parent, frame), [len(nodes), 0, 0])
            node[1] += nbytes
            node[2] += count
            parent = node[0]
    least = least_share * sum(nbytes for _, nbytes, _ in found)
    below: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for (parent, frame), (index, nbytes, count) in nodes.items():
        if nbytes >= least:
            below[parent].append((-nbytes, index, frame, count))
    calls: list[Call] = []
    places = {ROOT: ROOT}
    for parent in (waiting := [ROOT]):
        for negative, index, frame, count in sorted(below[parent]):
            places[index] = len(calls)
            calls.append(Call(stacks.frames[frame], places[parent], -negative, count))
            waiting.append(index)
    return tuple(calls)
