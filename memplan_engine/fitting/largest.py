"""The largest of a number that fits: a micro-batch, a length, a count of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memplan_engine.errors import InputError
from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.fitted import Fitted

MOST = 1 << 20
"""Where nobody says what the largest may be."""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """What the fit at one `value` came to; its ops take `once_seconds` where each runs once."""

    value: int
    fitted: Fitted
    once_seconds: float

    @property
    def fits(self) -> bool:
        """Whether a schedule was found that does."""
        return self.fitted.verdict is Verdict.FITS

    @property
    def seconds(self) -> float:
        """What its ops take, those that run again more than once."""
        return self.once_seconds + self.fitted.best.extra_seconds


@dataclass(frozen=True, slots=True, eq=False)
class Largest:
    """The values of `name` that were `tried`, from the smallest up, of those from `low` to `high`."""

    name: str
    low: int
    high: int
    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The largest that fits; the smallest that was tried where none does."""
        fitting = [each for each in self.tried if each.fits]
        return fitting[-1] if fitting else self.tried[0]

    @property
    def next(self) -> Tried | None:
        """The value above it, which does not fit as far as anybody found; None where nothing was in the way,
        or where somebody cancelled before it was known."""
        above = [each for each in self.tried if each.value == self.best.value + 1]
        return above[0] if above and not above[0].fits else None


def largest_that_fits(
    fit: Callable[[int], Tried],
    name: str,
    low: int = 1,
    high: int = MOST,
    stopped: Callable[[], bool] = lambda: False,
) -> Largest:
    """The largest value from `low` to `high` for which `fit(value)` finds a schedule that fits: doubled until
    it does not, then halved in between. What fits at a value is taken to fit at each smaller one. Where
    `stopped` the values so far are the answer.

    Raises
    ------
    InputError: `low` below 1 or above `high`; as `fit` does.
    """
    if not 1 <= low <= high:
        raise InputError("--largest", name, f"{low} to {high}", "a range from 1 or more up")
    tried: dict[int, Tried] = {}

    def fits(value: int) -> bool:
        tried[value] = fit(value)
        return tried[value].fits

    good, bad = low - 1, high + 1
    value = low
    while good + 1 < bad and not (tried and stopped()):
        if fits(value):
            good = value
            value = min(2 * value, high) if bad > high else (good + bad) // 2
        else:
            bad = value
            value = (good + bad) // 2
    return Largest(name, low, high, tuple(tried[value] for value in sorted(tried)))


def parse_largest(text: str) -> tuple[str, int, int]:
    """The name and the range of "batch", "batch=1:64", "batch=:64" or "batch=8:".

    Raises
    ------
    InputError: what is none of them.
    """
    name, equals, span = text.partition("=")
    low, colon, high = span.partition(":")
    plain = all(part.isascii() and part.isdigit() and len(part) < 10 for part in (low, high) if part)
    if not name.isidentifier() or not plain or bool(equals) != bool(colon):
        raise InputError("--largest", "", repr(text), "NAME or NAME=LOW:HIGH with whole numbers: batch=1:256")
    return name, int(low or 1), int(high or MOST)
