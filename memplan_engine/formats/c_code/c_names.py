"""Names of buffers as names of C."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memplan_engine.errors import InputError

_OTHER = re.compile(r"[^A-Za-z0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MOST_LETTERS = 48
"""Of a name that is made from another: C promises to tell 63 apart, and a prefix stands before."""


def c_names(names: Iterable[str], taken: Iterable[str] = ("arena",)) -> list[str]:
    """For each of `names` one of capital letters, digits and underscores, no two the same and none as in
    `taken`, what arenas are called: a number behind those that would be."""
    found: list[str] = []
    seen = {name.upper() for name in taken}
    for name in names:
        wanted = _OTHER.sub("_", name).strip("_").upper()[:MOST_LETTERS] or "BUFFER"
        wanted = f"B{wanted}" if wanted[0].isdigit() else wanted
        free, number = wanted, 1
        while free in seen:
            number += 1
            free = f"{wanted}_{number}"
        seen.add(free)
        found.append(free)
    return found


def c_prefix(text: str, place: str) -> str:
    """`text` where it is a name of C.

    Raises
    ------
    InputError: it is none, named as what was given at `place`.
    """
    if not _NAME.fullmatch(text):
        raise InputError(
            place, "", repr(text), "a name of C: letters, digits and underscores, a letter first"
        )
    return text
