"""Ticks of bytes and of shares at round places."""

from __future__ import annotations

from math import ceil, floor, log10

MOST = 6
MOST_SHARES = 4
LEAST_SHARE = 0.001
"""An axis of shares reaches at least so far: below a tenth of a percent there is nothing to be seen."""


def byte_ticks(top: int) -> list[int]:
    """0 and multiples of a power of two up to `top` bytes, MOST of them at most."""
    step = 1
    while top // step >= MOST:
        step *= 2
    return list(range(0, top + 1, step))


def share_ticks(top: float) -> dict[float, str]:
    """0 and multiples of 1, 2 or 5 times a power of ten up to `top`, a share of 1, or LEAST_SHARE if that is
    more; each with its words in percent, MOST_SHARES at most, no two alike."""
    top = max(top, LEAST_SHARE)
    decade = 10.0 ** (ceil(log10(top)) - 2)
    step = next(each for digit in (1, 2, 5, 10, 20, 50) if top // (each := digit * decade) < MOST_SHARES)
    decimals = max(0, -floor(log10(100 * step) + 1e-9))
    return {tick * step: f"{100 * tick * step:.{decimals}f} %" for tick in range(int(top // step) + 1)}
