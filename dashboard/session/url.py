"""What the URL says, read with suspicion: text → values, or an error that names the parameter."""

from __future__ import annotations

import math

from memplan_dashboard.session.documents import Options

from memplan_engine import MemplanError, Unread
from memplan_engine.preparation import Preparation

MOST_ALIGNMENT = 2**30
MOST_DIM = 2**31 - 1
MOST_STREAMS = 1024
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
    how = Preparation(
        alignment=_number(choices, "alignment", MOST_ALIGNMENT, "bytes"),
        plan_inputs=choices["inputs"] == "1",
        symbols=parse_dims(choices["symbols"]),
        streams=_number(choices, "streams", MOST_STREAMS, "ops a step"),
        unread=Unread.HELD if choices["unread"] == Unread.HELD else Unread.FREED,
        round_sizes=choices["round"] == "1",
        in_place=choices["in_place"] == "1",
        concat=choices["concat"] == "1",
    )
    return Options(parse_dims(choices["dims"]), choices["as_plan"] == "1", how, choices["part"])


def option_choices(options: Options) -> dict[str, str]:
    """The same back as text."""
    how = options.how
    return {
        "dims": pairs_text(options.dims),
        "as_plan": "1" if options.offsets_as_plan else "",
        "part": options.part,
        "alignment": str(how.alignment or ""),
        "inputs": "1" if how.plan_inputs else "",
        "symbols": pairs_text(how.symbols),
        "streams": str(how.streams or ""),
        "unread": "" if how.unread is Unread.FREED else str(how.unread),
        "round": "1" if how.round_sizes else "",
        "in_place": "1" if how.in_place else "",
        "concat": "1" if how.concat else "",
    }


def pairs_text(pairs: tuple[tuple[str, int], ...]) -> str:
    """ "batch=1,sequence=128"."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def parse_mebibytes(text: str) -> float | None:
    """A capacity in MiB; None for none and for what is no number above 0."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(value, MOST_MEBIBYTES) if not math.isnan(value) and value > 0 else None


def mebibytes_text(mebibytes: float | None) -> str:
    """The same back as text."""
    return repr(mebibytes).removesuffix(".0") if mebibytes else ""


def _number(choices: dict[str, str], name: str, most: int, unit: str) -> int | None:
    text = choices[name]
    value = _whole(text) if text else None
    if text and (value is None or not 1 <= value <= most):
        raise MemplanError(f"{name}: found {text[:40]!r}, expected 1 to {most:,} {unit}")
    return value


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
