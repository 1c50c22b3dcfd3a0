"""How much more memory is still no regression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from memplan_engine.diffing.regression import Diff
from memplan_engine.errors import InputError
from memplan_engine.units import UNITS_TAKEN, format_bytes, parse_bytes

_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a plan may grow: `nbytes`, or `percent` of the base. What counts is the arena with its
    workspace; the arena alone where the two sides do not count the same (`Diff.judged`)."""

    nbytes: int = 0
    percent: Fraction | None = None

    def allowed(self, diff: Diff) -> int:
        """The bytes by which the head of `diff` may be larger."""
        if self.percent is None:
            return self.nbytes
        return int(self.percent * diff.judged[0] / 100)

    def exceeded(self, diff: Diff) -> bool:
        """Whether it grew by more than that; by just as much is allowed."""
        return self.growth(diff) > self.allowed(diff)

    def growth(self, diff: Diff) -> int:
        """By how many bytes it grew."""
        base, head = diff.judged
        return head - base

    def __str__(self) -> str:
        return format_bytes(self.nbytes) if self.percent is None else f"{float(self.percent):g} %"


def parse_limit(text: str, source: str = "--fail-above") -> Limit:
    """ "5%", "10MiB", "1048576" → a limit; raises InputError naming `source` for anything else."""
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return Limit(percent=Fraction(percent[1]))
    try:
        return Limit(parse_bytes(text, source))
    except InputError as error:
        expected = f"a share as in 5%, bytes, or {UNITS_TAKEN}"
        raise InputError(source, "", error.found, expected) from None
