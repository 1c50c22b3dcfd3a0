"""Positional maxima and breadths (Pisarchyk and Lee 2020): how small shared objects can be at best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memplan_engine.kernels.shared_objects.positional import largest_kth
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import Sections, live_bytes, load_of


def positional_maxima(problem: Problem) -> Ints:
    """For k = 0, 1, …: the largest size (bytes) that is the k-th largest at some step; never increasing.

    As many entries as buffers are alive together at most. A buffer counts over its whole lifetime, with its
    gaps, for it keeps its object in them. O(n log n).
    """
    sections = _sections(problem)
    by_size = np.argsort(-problem.size, kind="stable")
    maxima: Ints = largest_kth(by_size, sections.first, sections.last, np.array(problem.size), len(sections))
    return maxima


def shared_objects_bound(problem: Problem) -> int:
    """The sum of the positional maxima, bytes: no assignment to shared objects needs less.

    At the step of the k-th maximum k + 1 buffers of at least its size are alive, each in an object of its
    own. So of the objects, largest first, the k-th is no smaller. Padding for alignment is not counted.
    """
    return int(positional_maxima(problem).sum())


def breadths(problem: Problem) -> tuple[Ints, Ints]:
    """Where breadth changes, and the breadth from there on: (steps, bytes), two arrays of equal length.

    The breadth of a step is the sum of the sizes of all buffers alive there; gaps count as alive.
    """
    sections = _sections(problem)
    return sections.bounds[:-1], live_bytes(sections, problem.size)


def breadth_at(problem: Problem, step: int) -> int:
    """The breadth of `step`, bytes; 0 outside the problem's steps."""
    alive = (problem.start <= step) & (step < problem.end)
    return int(problem.size[alive].sum())


def _sections(problem: Problem) -> Sections:
    return load_of(replace(problem, gaps={}) if problem.gaps else problem).sections
