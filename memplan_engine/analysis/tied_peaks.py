"""Steps that reach the same peak, and the other peaks of the profile."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Held, held_bytes, load_of

LEAST_PROMINENCE = 0.05
"""Of a local peak, as a share of the highest one."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True)
class TiedPeak:
    """One of the places at which the peak of `nbytes` bytes is reached: the first such step there, and how
    many steps reach it. `module` is the layer that runs then ("transformer.h.0"), "" where no op says."""

    step: int
    nbytes: int
    module: str
    steps: int = 1


def repeated(path: str) -> str:
    """What counterparts in other layers share: "h.0.mlp.act" → "h.*.mlp.act"."""
    return _NUMBER.sub("*", path)


def layer_of(module: str) -> str:
    """`module` up to its first number: "transformer.h.0.mlp.act" → "transformer.h.0"; whole without one."""
    found = _NUMBER.search(module)
    return module[: found.end()] if found else module


def tied_peaks(problem: Problem) -> tuple[TiedPeak, ...]:
    """The places at which `problem` reaches its peak, temporaries of its ops included, in order of time.

    Steps of one layer count as one place, and so do steps one after another that no layer tells apart.
    """
    return problem.once(_tied_peaks)


def _tied_peaks(problem: Problem) -> tuple[TiedPeak, ...]:
    held = _held(problem)
    peak = held.peak_bytes
    if not peak:
        return ()
    ends = np.append(held.start[1:], problem.steps)
    rows = np.flatnonzero(held.nbytes == peak)
    modules = _modules(problem)
    places: list[TiedPeak] = []
    before = -1
    for start, end in zip(held.start[rows].tolist(), ends[rows].tolist(), strict=True):
        module = layer_of(modules.get(start, ""))
        last = places[-1] if places else None
        if last and last.module == module and (module or before == start):
            places[-1] = TiedPeak(last.step, peak, module, last.steps + end - start)
        else:
            places.append(TiedPeak(start, peak, module, end - start))
        before = end
    return tuple(places)


def local_peaks(problem: Problem, prominence: float = LEAST_PROMINENCE) -> Ints:
    """The first step of every local peak of `problem`, temporaries included, in order of time (int64).

    A local peak is higher than what comes just before and after it, and it stands out: on both sides the
    bytes fall by `prominence` of the highest peak before anything higher comes. Of peaks of one height with
    no such fall between them the first one counts.
    """
    held = _held(problem)
    least = max(prominence * held.peak_bytes, 1)
    return held.start[np.array(_prominent(held.nbytes.tolist(), least), dtype=np.int64)]


def _prominent(values: list[int], least: float) -> list[int]:
    """Where `values`, 0 before and after them, stand out by `least`."""
    rows: list[int] = []
    rising, low, high, at = False, 0, 0, -1
    for row, value in enumerate([*values, 0]):
        if rising and value > high:
            high, at = value, row
        elif rising and value <= high - least:
            rows.append(at)
            rising, low = False, value
        elif not rising:
            low = min(low, value)
            if value >= low + least:
                rising, high, at = True, value, row
    return rows


def _held(problem: Problem) -> Held:
    load = load_of(problem)
    return held_bytes(problem, load.sections, load.live)


def _modules(problem: Problem) -> dict[int, str]:
    """The module of the first op of each step that has one."""
    modules: dict[int, str] = {}
    if problem.origin is not None:
        graph, schedule = problem.origin.graph, problem.origin.schedule
        for op, step in zip(graph.ops, schedule.step_of_op, strict=True):
            if op.module:
                modules.setdefault(step, op.module)
    return modules
