"""Round values for axes: powers of two for bytes, 1-2-5 for steps and shares.

`frontend/ticks.js` has those of charts that zoom in the browser.
"""

from __future__ import annotations

from math import ceil, floor, log2, log10
from typing import Any

from memplan_engine.units import UNITS, format_bytes

MOST_DECIMALS = 2
MOST = 6
MOST_SHARES = 4
LEAST_SHARE = 0.001
"""An axis of shares reaches at least so far: below a tenth of a percent there is nothing to be seen."""


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


def byte_values(top: int) -> list[int]:
    """0 and multiples of a power of two up to `top` bytes, MOST of them at most."""
    step = 1
    while top // step >= MOST:
        step *= 2
    return list(range(0, top + 1, step))


def byte_axis(top: int) -> dict[str, Any]:
    """An axis of bytes up to `top`, as Plotly takes its ticks."""
    ticks = byte_values(top)
    return {"tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}


def share_ticks(top: float) -> dict[float, str]:
    """0 and multiples of 1, 2 or 5 times a power of ten up to `top`, a share of 1, or LEAST_SHARE if that is
    more; each with its words in percent, MOST_SHARES at most, no two alike."""
    top = max(top, LEAST_SHARE)
    decade = 10.0 ** (ceil(log10(top)) - 2)
    step = next(each for digit in (1, 2, 5, 10, 20, 50) if top // (each := digit * decade) < MOST_SHARES)
    decimals = max(0, -floor(log10(100 * step) + 1e-9))
    return {tick * step: f"{100 * tick * step:.{decimals}f} %" for tick in range(int(top // step) + 1)}


def count_axis(end: int, title: str, ticks: int) -> dict[str, Any]:
    """Plotly's settings of an axis of steps or ops from 0 to `end`, with at most so many ticks."""
    return {"range": [0, end], "title": title, "hoverformat": ",d", "tickformat": ",d", "nticks": ticks}
