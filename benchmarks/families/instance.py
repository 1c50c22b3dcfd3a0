"""What a benchmark packs: a problem, and what is known about its optimum."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from random import Random

import numpy as np

from memplan_engine.bounds import lower_bound
from memplan_engine.problem import FREE, Ints, Problem, make_problem

Rectangle = tuple[int, int, int, int]
"""start, end (steps, half-open), offset, size (both in bytes)."""

_SEED = re.compile(r"-s\d+$")


class Feature(StrEnum):
    """What a problem may ask for beyond sizes and lifetimes, and not every packer can be told."""

    ALIGNMENTS = "alignments"
    FIXED = "fixed offsets"
    GAPS = "gaps"
    WINDOWS = "gaps with windows"


def features(problem: Problem) -> frozenset[Feature]:
    """What `problem` asks for; nothing where all buffers are plain."""
    gaps = [gap for own in problem.gaps.values() for gap in own]
    asked = {
        Feature.ALIGNMENTS: bool((problem.alignment != 1).any()),
        Feature.FIXED: bool((problem.fixed != FREE).any()),
        Feature.GAPS: bool(gaps),
        Feature.WINDOWS: any(gap.low < gap.high for gap in gaps),
    }
    return frozenset(feature for feature, there in asked.items() if there)


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem to be packed, and what is known of it.

    `optimum` is the smallest arena in bytes where the construction gives it, and `witness` then a placement
    that needs no more. `target` is a capacity in bytes that somebody else's benchmark asks for.
    """

    name: str
    problem: Problem
    optimum: int | None = None
    witness: Ints | None = None
    target: int | None = None

    @property
    def family(self) -> str:
        """The name without its seed, of those that have one; else the folder that it is in."""
        plain = _SEED.sub("", self.name)
        return plain if plain != self.name else self.name.rpartition("/")[0] or self.name

    @cached_property
    def features(self) -> frozenset[Feature]:
        """What it asks for beyond sizes and lifetimes."""
        return features(self.problem)

    @cached_property
    def lower_bound(self) -> int:
        """The best bound without a search, bytes: LOAD, where alignments, gaps and fixed offsets prove no
        more."""
        return lower_bound(self.problem).nbytes

    @property
    def bound(self) -> int:
        """What an arena is compared with: the optimum where it is known, or else the lower bound."""
        return self.lower_bound if self.optimum is None else self.optimum

    @property
    def capacity(self) -> int:
        """The capacity to decide: the published one, else the known optimum, else the lower bound."""
        return self.bound if self.target is None else self.target


def from_rectangles(name: str, rectangles: Iterable[Rectangle], optimum: int, seed: int = 0) -> Instance:
    """An instance whose optimal placement is `rectangles`, in an order that gives nothing away."""
    rows = list(rectangles)
    Random(seed).shuffle(rows)
    start, end, offset, size = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Instance(name, make_problem(start, end, size, name=name), optimum, offset)
