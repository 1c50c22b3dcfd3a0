"""A storage's place in an arena."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """Where a storage lies: bytes `[low, high)` of the arena, during the steps `[start, end)` of the plan."""

    storage: str
    low: int
    high: int
    start: int
    end: int
