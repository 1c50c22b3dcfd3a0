"""What the peak is made of."""

from __future__ import annotations

from dataclasses import dataclass

from memplan_engine.graph import Op
from memplan_engine.pieces import cut
from memplan_engine.problem import Problem
from memplan_engine.profile import alive_at, bytes_at, cut_time, live_bytes, peak_step
from memplan_engine.provenance import Provenance, find_provenance, ops_at


@dataclass(frozen=True, slots=True)
class Contributor:
    """A buffer alive at the peak: its index, name, the bytes it holds there and where it comes from."""

    buffer: int
    name: str
    nbytes: int
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Peak:
    """The first step with the most live bytes; `contributors`, largest first, sum to `nbytes`."""

    step: int
    nbytes: int
    ops: tuple[Op, ...]
    contributors: tuple[Contributor, ...]


def find_peak(problem: Problem) -> Peak:
    """The peak of the live bytes of `problem`."""
    pieces = cut(problem)
    sections = cut_time(problem, pieces)
    return contents_of(problem, peak_step(sections, live_bytes(sections, pieces.high - pieces.low)))


def contents_of(problem: Problem, step: int) -> Peak:
    """Everything that is alive at `step`, as for the peak."""
    known = find_provenance(problem)
    contributors = tuple(
        Contributor(buffer, problem.names[buffer], bytes_at(problem, buffer, step), known[buffer])
        for buffer in alive_at(problem, step).tolist()
    )
    total = sum(contributor.nbytes for contributor in contributors)
    return Peak(step, total, ops_at(problem, step), contributors)
