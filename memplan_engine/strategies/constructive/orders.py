"""The orders in which constructive strategies place buffers. Every order breaks ties by start, then index."""

from __future__ import annotations

import numpy as np

from memplan_engine.graph import MAX_BYTES
from memplan_engine.kernels.constructive.breadth import busiest_section
from memplan_engine.problem import Ints, Problem
from memplan_engine.profile import live_bytes
from memplan_engine.strategies.constructive.order_fit import Prepared


def by_start(prepared: Prepared) -> Ints:
    """As the buffers come alive; of those that come together, in the problem's order."""
    return np.lexsort((prepared.problem.start,))


def by_size(prepared: Prepared) -> Ints:
    """Largest first."""
    problem = prepared.problem
    return np.lexsort((problem.start, -problem.size))


def by_size_then_lifetime(prepared: Prepared) -> Ints:
    """Largest first, of equals the longest-lived."""
    problem = prepared.problem
    return np.lexsort((problem.start, problem.start - problem.end, -problem.size))


def by_area(prepared: Prepared) -> Ints:
    """Largest size × lifetime first."""
    problem = prepared.problem
    length = problem.end - problem.start
    area = problem.size * length
    if int(problem.size.max(initial=0)) * int(length.max(initial=0)) > MAX_BYTES:
        # Ranks of exact products stand for products that would wrap around.
        exact = problem.size.astype(object) * length
        area = np.unique(exact, return_inverse=True)[1]
    return np.lexsort((problem.start, -area))


def by_lifetime(prepared: Prepared) -> Ints:
    """Longest-lived first, of equals the largest."""
    problem = prepared.problem
    return np.lexsort((problem.start, -problem.size, problem.start - problem.end))


def by_conflicts(prepared: Prepared) -> Ints:
    """Most conflicts first, of equals the largest."""
    problem = prepared.problem
    return np.lexsort((problem.start, -problem.size, -conflicts(problem)))


def by_breadth(prepared: Prepared) -> Ints:
    """Steps by breadth (live bytes), largest first, and at each the buffers alive there, largest first.

    A buffer is placed with the first step in that order at which it is alive: the busiest of its lifetime.
    """
    problem = prepared.problem
    busiest, live = busiest_sections(prepared)
    return np.lexsort((problem.start, -problem.size, busiest, -live))


def busiest_sections(prepared: Prepared) -> tuple[Ints, Ints]:
    """The busiest section of each buffer's lifetime, and the bytes live there: O(n log n)."""
    problem, pieces, sections = prepared.problem, prepared.pieces, prepared.sections
    live = live_bytes(sections, pieces.high - pieces.low)
    first = np.searchsorted(sections.bounds, problem.start)
    last = np.searchsorted(sections.bounds, problem.end)
    busiest = busiest_section(first, last, live) if len(problem) else first
    return busiest, live[busiest]


def conflicts(problem: Problem) -> Ints:
    """How many other buffers are alive at some step of each one's lifetime: O(n log n)."""
    ended = np.searchsorted(np.sort(problem.end), problem.start, side="right")
    begun = np.searchsorted(np.sort(problem.start), problem.end, side="left")
    return begun - ended - 1
