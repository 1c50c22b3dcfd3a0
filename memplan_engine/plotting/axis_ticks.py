"""Round values for the axes: powers of two for bytes, 1-2-5 for steps."""

from __future__ import annotations

from math import ceil, floor, log2, log10

from memplan_engine.units import UNITS

MOST_DECIMALS = 2


def byte_ticks(top: int, most: int) -> list[tuple[int, str]]:
    """(bytes, label) from 0 up to `top` at multiples of a power of two, about `most` of them, all labels in
    one binary unit: the largest in which no tick has more than MOST_DECIMALS decimals."""
    if top <= 0:
        return [(0, "0")]
    gap = 1 << max(0, ceil(log2(top / max(1, most))))
    unit = min(len(UNITS) - 1, floor(log2(top)) // 10)
    while unit and 10 * unit - log2(gap) > MOST_DECIMALS:
        unit -= 1
    ticks = range(0, top + 1, gap)
    return [(value, f"{value / 1024**unit:,.10g} {UNITS[unit]}" if value else "0") for value in ticks]


def step_ticks(steps: int, most: int) -> list[tuple[int, str]]:
    """(step, label) from 0 up to `steps` at multiples of 1, 2 or 5 times a power of ten, about `most`."""
    raw = max(1.0, steps / max(1, most))
    decade = 10 ** floor(log10(raw))
    gap = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= raw * 0.999)
    return [(value, f"{value:,}") for value in range(0, steps + 1, gap)]
