"""Words of titles."""

from __future__ import annotations

from collections.abc import Iterable


def capitalised(text: str) -> str:
    """`text` with its first letter large, the others as they are."""
    return text[:1].upper() + text[1:]


def listed(words: Iterable[str]) -> str:
    """ "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
