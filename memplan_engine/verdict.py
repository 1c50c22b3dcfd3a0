"""The answer to "does it fit": one enum, its reasons, its exit codes and its words for the whole project."""

from __future__ import annotations

from enum import StrEnum

from memplan_engine.scope import OF_COMPILED_RUNS, Basis, Scope


class Verdict(StrEnum):
    """Whether something fits into a capacity."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """What an undecided verdict depends on where no longer search would decide it."""

    OTHERS_HOLD = "depends on what else is held"
    UNKNOWN_INSIDE = "what is inside an op is not planned"
    UNKNOWN_SIZES = "some sizes depend on the data"
    PARTIAL = "the recording is partial"
    COMPILED = "the run is compiled, and the figure is of its eager Python"
    ASSUMED = "some values are assumed"

    @property
    def meaning(self) -> str:
        """Its meaning for the figures, in one sentence."""
        if self is Reason.COMPILED:
            return "The compiled run may hold more or less than the figures count"
        if self is Reason.ASSUMED:
            return "With other values a run may hold more or less than the figures count"
        return "A run may hold more than the figures count"


EITHER_WAY = frozenset({Reason.COMPILED, Reason.ASSUMED})
"""Reasons for which a run may hold less than its figures count, too."""


def doubt_of(scope: Scope, basis: Basis) -> Reason | None:
    """Return why a run may hold something else than figures of `scope` and `basis`; None for no reason."""
    if scope in OF_COMPILED_RUNS or basis.compiled:
        return Reason.COMPILED
    if scope is Scope.PART:
        return Reason.PARTIAL
    return Reason.ASSUMED if basis.doubts else None


def doubted(verdict: Verdict, reason: Reason | None) -> tuple[Verdict, Reason | None]:
    """Return UNDECIDED and `reason` where that leaves `verdict` open, else `verdict` and None.

    Of a run that may hold more than its figures count it is open whether it fits; that it does not is proved.
    Where it may hold less, too (EITHER_WAY), they prove neither.
    """
    if reason is None or (verdict is Verdict.DOES_NOT_FIT and reason not in EITHER_WAY):
        return verdict, None
    return Verdict.UNDECIDED, reason


EXIT_CODES = {Verdict.FITS: 0, Verdict.DOES_NOT_FIT: 1, Verdict.UNDECIDED: 3}
"""The exit codes of all verbs that take a capacity or a device."""


def verdict_text(
    verdict: Verdict, reason: Reason | None = None, *, what: str = "", capacity: str = ""
) -> str:
    """Return the verdict in words, lower case.

    "fits in 24 GiB", "the arena does not fit in 5 MiB", "undecided whether it fits in 24 GiB (depends on what
    else is held)"; without `capacity` just "undecided (…)".
    """
    room = f" in {capacity}" if capacity else ""
    if verdict is Verdict.UNDECIDED:
        question = f" whether {what or 'it'} fits{room}" if what or room else ""
        return f"{verdict}{question}" + (f" ({reason})" if reason else "")
    return f"{what} {verdict}{room}".lstrip()
