"""Storages that are filled block by block: which of their bytes are needed when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memplan_engine.problem import Gap, Ints


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes `[low, high)` of a storage, needed in the steps `[start, end)`."""

    start: int
    end: int
    low: int
    high: int

    def shifted(self, nbytes: int) -> Part:
        """The same part of a storage that lies `nbytes` bytes inside another."""
        return Part(self.start, self.end, self.low + nbytes, self.high + nbytes)


def hulls(parts: Sequence[Part]) -> list[Gap]:
    """The bytes needed over time, from the lowest to the highest part alive: one Gap for each stretch of
    steps in which they stay the same, in order, from the first start to the last end."""
    edges = sorted({edge for part in parts for edge in (part.start, part.end)})
    stretches: list[Gap] = []
    for start, end in pairwise(edges):
        alive = [part for part in parts if part.start <= start and end <= part.end]
        low = min((part.low for part in alive), default=0)
        high = max((part.high for part in alive), default=0)
        last = stretches[-1] if stretches else None
        if last is not None and (last.low, last.high) == (low, high):
            stretches[-1] = Gap(last.start, end, low, high)
        else:
            stretches.append(Gap(start, end, low, high))
    return stretches


def windows_of(parts: Sequence[Part], nbytes: int) -> tuple[Gap, ...]:
    """The stretches in which less than all `nbytes` bytes of a storage are needed."""
    return tuple(gap for gap in hulls(parts) if (gap.low, gap.high) != (0, nbytes))


def add_load(load: Ints, parts: Sequence[Part], sign: int) -> None:
    """Add to `load`, bytes a step, what a storage of these parts holds (take it away with `sign` −1)."""
    for gap in hulls(parts):
        load[gap.start : gap.end] += sign * (gap.high - gap.low)


def empty_load(steps: int) -> Ints:
    """No bytes at any of `steps` steps."""
    return np.zeros(steps, dtype=np.int64)
