"""Byte counts for people: always binary units, rounded only here."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_bytes(count: int | float) -> str:
    """ "36.54 MiB", "512 B", "1 KiB": two decimals at most, none that are zero."""
    sign, value = ("-" if count < 0 else ""), abs(count)
    for unit in UNITS:
        if round(value, 2) < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{sign}{text} {unit}"


def format_percent(ratio: float) -> str:
    """0.0691 → "6.9 %"; what is above 0 never reads as 0."""
    percent = 100 * ratio
    if 0 < abs(percent) < 0.1:
        return f"{percent:.2g} %"
    return f"{percent:.1f} %"
