"""Stretches of time with a name: phases of a training step, branches of ops that run graphs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from memplan_engine.analysis.training_phases import phase_steps
from memplan_engine.graph import Path, branch_name
from memplan_engine.plotting.colouring import PHASE_COLOURS
from memplan_engine.problem import Origin, Problem

BRANCH_COLOURS = ("#5C6270", "#A9AFBB")
MOST_BANDS, MOST_ROWS = 1_000, 4
"""A row with more bands than that, and rows below it, are left out: they are too narrow to be read."""
BAND_ROW, BAR = 18.0, 3.0
"""Heights of a row above a chart and of the coloured bar in it, pixels."""
NARROWEST = 16.0
"""A narrower band has no lines at its ends, pixels."""


@dataclass(frozen=True, slots=True)
class Band:
    """The steps `[start, end)`, drawn in `row` (0 is the topmost) with a colour on light and one on dark
    ground. `short` is the name where `label` has no room, "" for none."""

    label: str
    start: int
    end: int
    colours: tuple[str, str]
    row: int = 0
    short: str = ""


def bands_of(problem: Problem) -> tuple[Band, ...]:
    """Return the bands of the graph behind `problem`, row by row: phases, then branches, with those that are
    inside others further down. O(ops), once a problem."""
    return problem.once(_bands_of)


def _bands_of(problem: Problem) -> tuple[Band, ...]:
    if problem.origin is None:
        return ()
    shown: list[Band] = []
    for row, bands in enumerate(_rows(problem.origin)):
        if row == MOST_ROWS or len(bands) > MOST_BANDS:
            break
        shown += (replace(band, row=row) for band in sorted(bands, key=lambda band: band.start))
    return tuple(shown)


def _rows(origin: Origin) -> Iterator[list[Band]]:
    phases = [
        Band(str(phase), start, end, PHASE_COLOURS[phase])
        for phase, stretches in phase_steps(origin.graph, origin.schedule).items()
        for start, end in stretches
    ]
    if phases:
        yield phases
    branches = _branch_steps(origin)
    for depth in range(1, max(map(len, branches), default=0) + 1):
        yield [
            Band(branch_name(path), *steps, BRANCH_COLOURS, short=path[-1][1])
            for path, steps in branches.items()
            if len(path) == depth
        ]


def _branch_steps(origin: Origin) -> dict[Path, tuple[int, int]]:
    """Return the half-open range of the steps of each branch."""
    found: dict[Path, tuple[int, int]] = {}
    for op, step in zip(origin.graph.ops, origin.schedule.step_of_op, strict=True):
        for depth in range(1, len(op.within) + 1):
            start, end = found.get(op.within[:depth], (step, step + 1))
            found[op.within[:depth]] = (min(start, step), max(end, step + 1))
    return found


def rows_of(bands: Iterable[Band]) -> int:
    """Return how many rows `bands` take."""
    return max((band.row + 1 for band in bands), default=0)
