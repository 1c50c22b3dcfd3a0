"""Searching buffers by a regular expression that a stranger may have typed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from math import prod

import numpy as np
import regex
from numpy.typing import NDArray

from memplan_engine import MemplanError, Problem, find_provenance

MOST_SECONDS = 1.0
"""A pattern can be made to run for ever; this is where it ends, all buffers together."""
MOST_REPEATS = 10_000
"""The product of a pattern's counted repeats: a{1000000000} would be unrolled until memory runs out."""

_COUNTS = re.compile(r"\{(\d*)\s*(?:,\s*(\d*))?")


def misses(problem: Problem, pattern: str) -> NDArray[np.bool_] | None:
    """Which buffers `pattern` does not find in their name, op kind or module; None for an empty pattern.

    Case does not matter; ^ and $ are the ends of each of the three. Raises MemplanError for a pattern that is
    not valid or takes too long.
    """
    if not pattern:
        return None
    if _repeats(pattern) > MOST_REPEATS:
        raise MemplanError(f"find: {pattern[:60]!r} repeats more than {MOST_REPEATS:,} times")
    try:
        return _search(
            regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE), _texts(problem), len(problem)
        )
    except (regex.error, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise MemplanError(f"find: {pattern[:60]!r} is not a regular expression: {reason}") from error
    except TimeoutError:
        raise MemplanError(f"find: {pattern[:60]!r} takes longer than {MOST_SECONDS:g} s") from None


def _search(compiled: regex.Pattern[str], texts: Iterable[str], count: int) -> NDArray[np.bool_]:
    deadline = time.monotonic() + MOST_SECONDS
    missed = np.zeros(count, dtype=bool)
    for row, text in enumerate(texts):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        missed[row] = compiled.search(text, timeout=left) is None
    return missed


def _repeats(pattern: str) -> int:
    counts = [int(number) for match in _COUNTS.finditer(pattern) for number in match.groups() if number]
    return prod(max(1, count) for count in counts)


def _texts(problem: Problem) -> list[str]:
    if problem.origin is None:
        return list(problem.names)
    return [
        f"{name}\n{known.kind}\n{known.module}"
        for name, known in zip(problem.names, find_provenance(problem), strict=True)
    ]
