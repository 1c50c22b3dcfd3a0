"""What the URL says, read with suspicion: text → values, or an error that names the parameter."""

from __future__ import annotations

import math

from dashboard.documents import Options
from memplan_engine import MemplanError

MOST_ALIGNMENT = 2**30
MOST_DIM = 2**31 - 1
MOST_MEBIBYTES = 2.0**40


def parse_dims(text: str) -> tuple[tuple[str, int], ...]:
    """ "batch=1, sequence=128" as pairs; raises MemplanError for what is none."""
    pairs = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in pair.partition("="))
        number = _whole(value)
        if not name or number is None or not 1 <= number <= MOST_DIM:
            raise MemplanError(
                f"dimensions: found {pair[:40]!r}, expected NAME=VALUE with a whole number of 1 or more"
            )
        pairs.append((name, number))
    return tuple(pairs)


def parse_options(choices: dict[str, str]) -> Options:
    """How the document is to be opened; raises MemplanError."""
    text = choices["alignment"]
    alignment = _whole(text) if text else None
    if text and (alignment is None or not 1 <= alignment <= MOST_ALIGNMENT):
        raise MemplanError(f"alignment: found {text[:40]!r}, expected 1 to 2^30 bytes")
    dims = parse_dims(choices["dims"])
    return Options(dims, choices["as_plan"] == "1", choices["inputs"] == "1", alignment)


def option_choices(options: Options) -> dict[str, str]:
    """The same back as text."""
    return {
        "dims": ",".join(f"{name}={value}" for name, value in options.dims),
        "alignment": str(options.alignment or ""),
        "inputs": "1" if options.plan_inputs else "",
        "as_plan": "1" if options.offsets_as_plan else "",
    }


def parse_mebibytes(text: str) -> float | None:
    """A budget in MiB; None for none and for what is no number above 0."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(value, MOST_MEBIBYTES) if not math.isnan(value) and value > 0 else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
