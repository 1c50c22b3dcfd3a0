"""What the URL says, read with suspicion: text → values, or an error that names the parameter."""

from __future__ import annotations

import math
from typing import Any

from memplan_dashboard.session.documents import Options

from memplan_engine import MemplanError
from memplan_engine.preparation import PLANNING_OPTIONS, PlanningOption, Preparation

MOST_DIM = 2**31 - 1
MOST_MEBIBYTES = 2.0**40
IN_ADDRESS = tuple(option for option in PLANNING_OPTIONS.values() if option.parameter)


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
    asked = {option.name: _value_of(option, choices[option.parameter]) for option in IN_ADDRESS}
    how = Preparation(symbols=parse_dims(choices["symbols"]), **asked)
    return Options(parse_dims(choices["dims"]), choices["as_plan"] == "1", how, choices["part"])


def option_choices(options: Options) -> dict[str, str]:
    """The same back as text."""
    how = options.how
    return {
        "dims": pairs_text(options.dims),
        "as_plan": "1" if options.offsets_as_plan else "",
        "part": options.part,
        "symbols": pairs_text(how.symbols),
        **{option.parameter: _text_of(option, how) for option in IN_ADDRESS},
    }


def _value_of(option: PlanningOption, text: str) -> Any:
    """What the address says of `option`; raises MemplanError for a number that is none."""
    if option.most:
        return _number(option, text)
    if option.kind is bool:
        return text == "1"
    return option.kind(text) if text in set(option.kind) else option.default


def _text_of(option: PlanningOption, how: Preparation) -> str:
    if not option.asked(how):
        return ""
    value = getattr(how, option.name)
    return "1" if value is True else str(value)


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


def _number(option: PlanningOption, text: str) -> int | None:
    value = _whole(text) if text else None
    if text and (value is None or not 1 <= value <= option.most):
        expected = f"1 to {option.most:,} {option.unit}"
        raise MemplanError(f"{option.parameter}: found {text[:40]!r}, expected {expected}")
    return value


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
