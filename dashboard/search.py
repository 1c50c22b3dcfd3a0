"""Searching buffers by a regular expression that a stranger may have typed."""

from __future__ import annotations

import numpy as np
import regex
from numpy.typing import NDArray

from memplan_engine import MemplanError, Problem, provenance

MOST_SECONDS = 1.0
"""A pattern can be made to run for ever; this is where it ends."""


def misses(problem: Problem, pattern: str) -> NDArray[np.bool_] | None:
    """Which buffers `pattern` does not find in their name, op kind or module; None for an empty pattern.

    Case does not matter. Raises MemplanError for a pattern that is not valid or takes too long.
    """
    if not pattern:
        return None
    try:
        compiled = regex.compile(pattern, regex.IGNORECASE)
        return np.fromiter(
            (not _found(compiled, text) for text in _texts(problem)), dtype=bool, count=len(problem)
        )
    except regex.error as error:
        raise MemplanError(f"find: {pattern[:60]!r} is not a regular expression: {error}") from error
    except TimeoutError:
        raise MemplanError(f"find: {pattern[:60]!r} takes longer than {MOST_SECONDS:g} s") from None


def _found(compiled: regex.Pattern[str], text: str) -> bool:
    return compiled.search(text, timeout=MOST_SECONDS) is not None


def _texts(problem: Problem) -> list[str]:
    if problem.origin is None:
        return list(problem.names)
    return [
        f"{name}\n{known.kind}\n{known.module}"
        for name, known in zip(problem.names, provenance(problem), strict=True)
    ]
