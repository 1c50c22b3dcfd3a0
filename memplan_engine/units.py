"""Byte counts for people: written in binary units and rounded only here, read in binary and decimal ones."""

from __future__ import annotations

import re

from memplan_engine.errors import InputError

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_FACTORS: dict[str, int] = {
    unit.lower(): base**power
    for base, units in ((1024, UNITS), (1000, _DECIMAL))
    for power, unit in enumerate(units)
}
UNITS_TAKEN = "units as in 512KiB (of 1,024) or 100MB (of 1,000)"
LEAST_PERCENT = 0.001
"""Smaller shares are only said to be smaller: nobody counts zeros, and the exact number is in the JSON."""
_SIZE = re.compile(r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,19})?)\s*(?P<unit>[A-Za-z]+)?", re.ASCII)


def format_bytes(count: int | float) -> str:
    """ "36.54 MiB", "512 B", "−1 KiB": two decimals at most, none that are zero."""
    sign, value = ("−" if count < 0 else ""), abs(count)
    for unit in UNITS:
        if round(value, 2) < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{sign}{text} {unit}"


def format_exactly(nbytes: int) -> str:
    """ "1.5 KiB", "27 KiB (27,649 B)": with the bytes where two decimals of a larger unit do not say them."""
    text = format_bytes(nbytes)
    value, unit = text.split()
    return text if float(value) * 1024 ** UNITS.index(unit) == nbytes else exact(nbytes)


def format_signed(nbytes: int) -> str:
    """A difference: "+1.5 KiB", "−3 B", "0 B"."""
    return f"{'+' * (nbytes > 0)}{format_bytes(nbytes)}"


def exact(nbytes: int) -> str:
    """ "1.5 KiB (1,536 B)", "170 B"."""
    return f"{format_bytes(nbytes)} ({nbytes:,} B)" if nbytes >= 1024 else f"{nbytes} B"


def format_percent(ratio: float) -> str:
    """0.0691 → "6.9 %", -0.25 → "−25.0 %", 0.00042 → "0.042 %", 1.8e-8 → "< 0.001 %": what is not 0 never
    reads as 0, and no figure is written with an exponent."""
    sign, percent = ("−" if ratio < 0 else ""), 100 * abs(ratio)
    if 0 < percent < LEAST_PERCENT:
        return f"{'>' if sign else '<'} {sign}{LEAST_PERCENT} %"
    if 0 < percent < 0.1:
        return f"{sign}{percent:.2g} %"
    return f"{sign}{percent:.1f} %"


def parse_bytes(text: str, source: str = "size") -> int:
    """ "1048576", "512KiB", "1.6 GiB", "100MB" → bytes: KiB is 1,024 of them, kB 1,000; a part of a byte that
    a unit comes to is left out. Raises InputError naming `source` for what is no number of bytes below 2^63,
    and for parts of bytes without a unit."""
    match = _SIZE.fullmatch(text.strip())
    expected = f"bytes below 2^63, or {UNITS_TAKEN}"
    unit = (match["unit"] or "b").lower() if match else ""
    if match and unit in _FACTORS:
        # Exactly, and not by way of a float: 2^63 - 1 is a size, too.
        number: str = match["number"]
        whole, _, decimals = number.partition(".")
        one: int = 10 ** len(decimals)
        scaled, remainder = divmod(int(whole + decimals) * _FACTORS[unit], one)
        whole_bytes = not remainder or _FACTORS[unit] > 1
        if whole_bytes and scaled < 2**63:
            return scaled
        if not whole_bytes:
            expected = f"a whole number of bytes, or {UNITS_TAKEN}"
    shown = repr(text if len(text) <= 40 else f"{text[:39]}…")
    raise InputError(source, "", shown, expected)


def count_of(number: int, noun: str) -> str:
    """ "1 storage", "2,000 storages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """ "5.58 ms", "3.2 s", "120 s": to the hundredth of a millisecond below a second."""
    if seconds < 1:
        return f"{1000 * seconds:.2f} ms"
    return f"{seconds:.1f}".removesuffix(".0") + " s" if seconds < 100 else f"{seconds:.0f} s"


def format_span(start: int, end: int) -> str:
    """The steps `[start, end)` as people count them: "step 3", "steps 3–7"."""
    return f"step {start:,}" if end == start + 1 else f"steps {start:,}–{end - 1:,}"


def shorten_path(path: str, width: int, sign: str = "/") -> str:
    """`path` in at most `width` letters: "…/gpt2/modeling_gpt2.py:282", or the end of its last part."""
    if len(path) <= width:
        return path
    parts = path.split(sign)
    for first in range(1, len(parts)):
        short = sign.join(("…", *parts[first:]))
        if len(short) <= width:
            return short
    if len(parts[-1]) <= width:
        return parts[-1]
    return f"…{path[len(path) - max(1, width - 1) :]}"
