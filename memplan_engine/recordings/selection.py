"""Which part of a snapshot is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """None stands for the device with the most bytes, and for all streams and pools."""

    device: int | None = None
    stream: int | None = None
    pool: tuple[int, int] | None = None


EVERYTHING = Selection()
