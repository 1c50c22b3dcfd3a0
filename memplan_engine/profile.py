"""What lives at each step: live bytes, high water, holes, and what the peak is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memplan_engine.graph import NO_WORKSPACE, Op, Workspace
from memplan_engine.kernels.plotting.paint import cover_max
from memplan_engine.problem import Ints, Pieces, Problem, cut


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """The time axis cut wherever something starts or ends; nothing changes inside a section.

    Section s covers the steps `[bounds[s], bounds[s + 1])`; piece p covers the sections
    `[first[p], last[p])`. `bounds` starts at 0 and ends at the problem's last step.
    """

    bounds: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def at(self, step: int) -> int:
        """The section that holds `step`."""
        return int(np.searchsorted(self.bounds, step, side="right")) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What buffers and the scratch of ops hold together: from each of the steps `start` to the next so many
    bytes (int64, shape (k,)). Scratch comes and goes inside sections."""

    start: Ints
    nbytes: Ints

    @property
    def peak_step(self) -> int:
        """The first step with the most bytes; 0 when there is no step at all."""
        return int(self.start[int(np.argmax(self.nbytes))]) if len(self.start) else 0

    @property
    def peak_bytes(self) -> int:
        """The most bytes of one step."""
        return int(self.nbytes.max(initial=0))

    def thinned(self, most: int) -> Held:
        """At most `most` entries: where there are more, each has the largest value of several."""
        if len(self.start) <= most:
            return self
        first = np.arange(0, len(self.start), -(-len(self.start) // most))
        return Held(self.start[first], np.maximum.reduceat(self.nbytes, first))


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Bytes over time, a value a section: `live` is the sum of the live buffers, `high_water` the end of the
    topmost of them, `holes` the free bytes below it. `held` has the scratch of ops in it, too."""

    sections: Sections
    live: Ints
    high_water: Ints
    held: Held

    @property
    def peak_step(self) -> int:
        """The first step with the most bytes, the scratch of its ops included."""
        return self.held.peak_step

    @property
    def peak_bytes(self) -> int:
        """How many bytes these are."""
        return self.held.peak_bytes

    @property
    def holes(self) -> Ints:
        """Free bytes below the high-water mark, a value a section."""
        return self.high_water - self.live

    @property
    def holes_at_peak(self) -> int:
        """Free bytes below the high-water mark at the peak."""
        return self._at_peak(self.holes)

    @property
    def live_at_peak(self) -> int:
        """What of `peak_bytes` lies in the arena; the rest is scratch of ops."""
        return self._at_peak(self.live)

    def _at_peak(self, values: Ints) -> int:
        return int(values[self.sections.at(self.peak_step)]) if len(values) else 0


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """The live bytes of a problem over time, whatever its placement: the pieces of its buffers, the sections
    of its steps, and the live bytes in each section (int64, read-only)."""

    pieces: Pieces
    sections: Sections
    live: Ints

    @property
    def peak(self) -> int:
        """LOAD: the most live bytes at one step, which no arena can be smaller than."""
        return int(self.live.max(initial=0))

    @property
    def peak_step(self) -> int:
        """The first step with so many; 0 when there is no step at all."""
        return peak_step(self.sections, self.live)

    @property
    def steps(self) -> int:
        """The number of steps of the problem."""
        return int(self.sections.bounds[-1])

    def at(self, step: int) -> int:
        """Live bytes at `step`; 0 outside of the problem."""
        return int(self.live[self.sections.at(step)]) if 0 <= step < self.steps else 0

    def fullest(self, first: int, last: int) -> int:
        """The first step from `first` to `last`, both included, with the most live bytes."""
        low, high = self.sections.at(first), self.sections.at(last)
        if not 0 <= low <= high < len(self.live):
            return first
        fullest = low + int(np.argmax(self.live[low : high + 1]))
        return max(first, int(self.sections.bounds[fullest]))


def load_of(problem: Problem) -> Load:
    """The live bytes of `problem`: O(n log n), once a problem."""
    return problem.once(_load)


def _load(problem: Problem) -> Load:
    pieces = cut(problem)
    sections = cut_time(problem, pieces)
    live = live_bytes(sections, pieces.high - pieces.low)
    live.flags.writeable = False
    return Load(pieces, sections, live)


def cut_time(problem: Problem, pieces: Pieces) -> Sections:
    """Cut the time axis at every start and end of a buffer and of a piece: O(n log n)."""
    edges = [pieces.start, pieces.end]
    if problem.gaps:
        # A lifetime that begins or ends in a gap has no piece there.
        edges += [problem.start, problem.end]
    bounds = np.unique(np.concatenate([[0, problem.steps], *edges]))
    return Sections(bounds, np.searchsorted(bounds, pieces.start), np.searchsorted(bounds, pieces.end))


def live_bytes(sections: Sections, weight: Ints) -> Ints:
    """The sum of `weight` (bytes a piece) over the pieces live in each section."""
    change = np.zeros(len(sections) + 1, dtype=np.int64)
    np.add.at(change, sections.first, weight)
    np.subtract.at(change, sections.last, weight)
    return np.cumsum(change[:-1])


def peak_step(sections: Sections, live: Ints) -> int:
    """The first step at which `live` is largest; 0 when there is no step at all."""
    return int(sections.bounds[int(np.argmax(live))]) if len(live) else 0


def held_bytes(problem: Problem, sections: Sections, live: Ints) -> Held:
    """What is held with the scratch of ops; `live` is a value a section: the bytes of the live buffers."""
    unique, shared = workspace_of(problem).unique, shared_by_step(problem)
    if not shared:
        return Held(sections.bounds[:-1], live + unique)
    steps = np.array(list(shared))
    start = np.unique(np.concatenate([sections.bounds[:-1], steps, steps + 1]))
    start = start[start < sections.bounds[-1]]
    nbytes = live[np.searchsorted(sections.bounds, start, side="right") - 1] + unique
    nbytes[np.searchsorted(start, steps)] += np.array(list(shared.values()))
    return Held(start, nbytes)


def make_profile(problem: Problem, offsets: Ints) -> Profile:
    """The profile of a placement; `offsets` in bytes, one a buffer."""
    load = load_of(problem)
    pieces, sections, live = load.pieces, load.sections, load.live
    top = offsets[pieces.owner] + pieces.high
    water = cover_max(sections.first, sections.last, top, len(sections))
    return Profile(sections, live, water, held_bytes(problem, sections, live))


def live_at(problem: Problem, step: int) -> Ints:
    """The buffers that hold bytes at `step`, largest first, ties by index."""
    held = bytes_held(problem, step)
    ids = np.flatnonzero(held)
    return ids[np.argsort(-held[ids], kind="stable")]


def bytes_held(problem: Problem, step: int) -> Ints:
    """The bytes that each buffer holds at `step`, as `bytes_at` has them."""
    low, high = windows_at(problem, step)
    return high - low


def windows_at(problem: Problem, step: int) -> tuple[Ints, Ints]:
    """The bytes `[low, high)` of itself that each buffer holds at `step`; low = high where it holds none."""
    low = np.zeros(len(problem), dtype=np.int64)
    high = np.where((problem.start <= step) & (step < problem.end), problem.size, 0)
    for buffer, gaps in problem.gaps.items():
        for gap in gaps:
            if gap.start <= step < gap.end:
                low[buffer], high[buffer] = gap.low, gap.high
    return low, high


def bytes_at(problem: Problem, buffer: int, step: int) -> int:
    """The bytes that `buffer` holds at `step`: its size, the window of a gap, or 0."""
    if not problem.start[buffer] <= step < problem.end[buffer]:
        return 0
    for gap in problem.gaps.get(buffer, ()):
        if gap.start <= step < gap.end:
            return gap.high - gap.low
    return int(problem.size[buffer])


SUFFIX = ".workspace"
"""What the scratch of an op is called, behind the op's name."""


def workspace_of(problem: Problem) -> Workspace:
    """What the ops behind `problem` need beside its arena, bytes: the most shared scratch at one step, and
    the sum of all that is unique; nothing for buffers without a graph."""
    if problem.origin is None:
        return NO_WORKSPACE
    shared = max(shared_by_step(problem).values(), default=0)
    return Workspace(shared, sum(op.workspace.unique for op in problem.origin.graph.ops))


def shared_by_step(problem: Problem) -> dict[int, int]:
    """The shared scratch in use, bytes, at each step that uses any: ops of one step run at once."""
    by_step: dict[int, int] = {}
    for op, step in scratching(problem):
        by_step[step] = by_step.get(step, 0) + op.workspace.shared
    return by_step


def scratching(problem: Problem) -> Iterator[tuple[Op, int]]:
    """The ops with shared scratch, and the step at which each runs."""
    if problem.origin is not None:
        steps = problem.origin.schedule.step_of_op
        for op, step in zip(problem.origin.graph.ops, steps, strict=True):
            if op.workspace.shared:
                yield op, step
