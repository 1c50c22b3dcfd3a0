"""Ticks of bytes at round places."""

from __future__ import annotations

MOST = 6


def byte_ticks(top: int) -> list[int]:
    """0 and multiples of a power of two up to `top` bytes, MOST of them at most."""
    step = 1
    while top // step >= MOST:
        step *= 2
    return list(range(0, top + 1, step))
