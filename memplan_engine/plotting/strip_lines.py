"""The lines on the strip below a chart, for whoever draws it: the page, reports, SVG, PNG and Plotly draw all
that `strip_lines` gives, each as it says of itself. A line more is one more entry of `SOURCES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memplan_engine.analysis.claims import workspace_name
from memplan_engine.plan import Plan
from memplan_engine.problem import Ints
from memplan_engine.profile import Profile

HELD = ("#6b2fa3", "#e3b5ff")
RESERVED = ("#8a4b00", "#f0b429")
"""Colours on light and on dark ground."""


@dataclass(frozen=True, slots=True, eq=False)
class StripLine:
    """From each of the steps `start` to the next so many bytes (int64, shape (r,)), or, unless `exact`, up to
    so many. `colours` are #rrggbb on light and on dark ground, `dash` the lengths of strokes and blanks in
    pixels, () for a solid line.

    Raises ValueError when both columns are not of one length.
    """

    label: str
    start: Ints
    nbytes: Ints
    colours: tuple[str, str] = HELD
    dash: tuple[int, ...] = ()
    exact: bool = True

    def __post_init__(self) -> None:
        if len(self.start) != len(self.nbytes):
            raise ValueError(f"line {self.label!r}: nbytes has not the {len(self.start)} rows of start")

    @property
    def peak_bytes(self) -> int:
        """The most bytes of it."""
        return int(self.nbytes.max(initial=0))


def strip_lines(plan: Plan, profile: Profile, most: int) -> tuple[StripLine, ...]:
    """The lines that there are for `plan`, whose `profile` this is: of `most` entries each, at most."""
    lines = (source(plan, profile, most) for source in SOURCES)
    return tuple(line for line in lines if line is not None)


def top_of_strip(plan: Plan, profile: Profile, lines: Iterable[StripLine]) -> int:
    """The bytes up to which a strip reaches that shows all of `profile` and `lines`, and the arena."""
    return max(1, plan.arena_bytes, profile.peak_bytes, *(line.peak_bytes for line in lines))


def held_line(plan: Plan, profile: Profile, most: int) -> StripLine | None:
    """What is held with the scratch of ops, where they have any."""
    if not plan.workspace_bytes:
        return None
    held = profile.held.thinned(most)
    label = f"with {workspace_name(plan.problem)}"
    return StripLine(label, held.start, held.nbytes, exact=held is profile.held)


SOURCES: tuple[Callable[[Plan, Profile, int], StripLine | None], ...] = (held_line,)
