"""Searching buffers by a regular expression that a stranger may have typed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
import regex
from numpy.typing import NDArray

from memplan_engine import MemplanError, Problem, find_provenance
from memplan_engine.analysis.buffer_names import buffer_names

MOST_PATTERN = 200
MOST_SECONDS = 1.0
"""A pattern can be made to run for ever; this is where it ends, in seconds of processor time, all buffers
together …"""
SECONDS_A_MILLION = 5.0
"""… and what a million buffers may take besides, where each has to be looked at by itself."""
MOST_REPEATS = 10_000
"""The product of a pattern's counted repeats: a{1000000000} would be unrolled until memory runs out."""

_FLAGS = regex.IGNORECASE | regex.MULTILINE
_CALLS = re.compile(r"\\.|(\(\?(?:R|[+-]?\d|&|P>|\(DEFINE))", re.DOTALL)
"""What is escaped, or a pattern within itself: (?R), (?1), (?&name). They take memory without end."""
_COUNTS = re.compile(r"\{(\d*)\s*(?:,\s*(\d*))?")
_IN_LINE = re.compile(
    r"""(?: \\[wdSbB.\-/()\[\]{}|*+?^$]   # escapes that match no line break
    | \((?:\?:|(?!\?))               # groups, no flags and no looking around
    | \{\d*,?\d*\}                  # counts, no fuzzy matching
    | \[(?![\^:])                   # sets, none that say what is not in them
    | [^\\({\[\x00-\x1f\x7f-\xa0\u2028\u2029]
    )*""",
    re.VERBOSE,
)
"""Patterns that never match a line break: of these all texts can be searched as one."""


def pattern_of(typed: str) -> str:
    """The regular expression for what was typed: that between slashes, "/attn|mlp/", else one that finds the
    text as it stands."""
    if len(typed) > 2 and typed.startswith("/") and typed.endswith("/"):
        return typed[1:-1]
    return re.escape(typed)


def typed_of(pattern: str) -> str:
    """What is typed for `pattern`."""
    text = re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)
    return text if pattern_of(text) == pattern else f"/{pattern}/"


def misses(problem: Problem, pattern: str) -> NDArray[np.bool_] | None:
    """Which buffers `pattern` does not find in their name, op kind or module; None for an empty pattern.

    Case does not matter; ^ and $ are the ends of each of the three. Raises MemplanError for a pattern that is
    not valid or takes too long.
    """
    return _misses(problem, pattern) if pattern else None


@lru_cache(4)
def _misses(problem: Problem, pattern: str) -> NDArray[np.bool_]:
    """Kept, for every click on a page asks for it again."""
    if len(pattern) > MOST_PATTERN:
        raise MemplanError(f"find: {pattern[:60]!r} … has more than {MOST_PATTERN} characters")
    if any(match[1] for match in _CALLS.finditer(pattern)):
        raise MemplanError(f"find: {pattern[:60]!r} is recursive, which is not supported")
    if _repeats(pattern) > MOST_REPEATS:
        raise MemplanError(f"find: {pattern[:60]!r} repeats more than {MOST_REPEATS:,} times")
    try:
        missed = _search(pattern, _texts(problem))
    except (regex.error, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise MemplanError(f"find: {pattern[:60]!r} is not a regular expression: {reason}") from error
    except MemoryError:
        raise MemplanError(f"find: {pattern[:60]!r} takes too much memory") from None
    except TimeoutError:
        limit = _limit(len(problem))
        raise MemplanError(f"find: {pattern[:60]!r} takes longer than {limit:.2g} s") from None
    missed.setflags(write=False)
    return missed


def _limit(count: int) -> float:
    return MOST_SECONDS + SECONDS_A_MILLION * count / 1e6


def _search(pattern: str, texts: Sequence[str]) -> NDArray[np.bool_]:
    compiled = regex.compile(pattern, _FLAGS)
    if _IN_LINE.fullmatch(pattern):
        return _search_as_one(pattern, texts)
    return _search_each(compiled, texts)


def _search_as_one(pattern: str, texts: Sequence[str]) -> NDArray[np.bool_]:
    """All texts, line below line: a match and the rest of its line at a time. A million take 0.2 s."""
    to_the_end = regex.compile(f"(?:{pattern})[^\\n]*", _FLAGS)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    ends = np.cumsum(lengths + 1) - 1
    matches = to_the_end.finditer("\n".join(texts), timeout=_limit(len(texts)), concurrent=True)
    places = np.fromiter((match.start() for match in matches), np.int64)
    missed = np.ones(len(texts), dtype=bool)
    if len(texts):
        missed[np.searchsorted(ends, places)] = False
    return missed


def _search_each(compiled: regex.Pattern[str], texts: Sequence[str]) -> NDArray[np.bool_]:
    deadline = time.monotonic() + _limit(len(texts))
    missed = np.zeros(len(texts), dtype=bool)
    for row, text in enumerate(texts):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        missed[row] = compiled.search(text, timeout=left, concurrent=True) is None
    return missed


def _repeats(pattern: str) -> int:
    counts = [int(number) for match in _COUNTS.finditer(pattern) for number in match.groups() if number]
    return prod(max(1, count) for count in counts)


def _texts(problem: Problem) -> Sequence[str]:
    if problem.origin is None:
        return problem.names
    return [
        f"{name}\n{label}\n{origin.kind}\n{origin.module}"
        for name, label, origin in zip(
            problem.names, buffer_names(problem), find_provenance(problem), strict=True
        )
    ]
