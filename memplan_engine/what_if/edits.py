"""The edits: each changes one buffer of a problem, which it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Pin:
    """Place `buffer` at `offset` bytes; None lets the strategy choose again."""

    buffer: str
    offset: int | None

    kind: ClassVar[str] = "pin"


@dataclass(frozen=True, slots=True)
class Resize:
    """Make `buffer` `nbytes` bytes large; windows of its gaps are cut to that."""

    buffer: str
    nbytes: int

    kind: ClassVar[str] = "resize"


@dataclass(frozen=True, slots=True)
class Split:
    """Cut `buffer` into `parts` buffers of about equal bytes, `buffer#1`, `buffer#2` …, each aligned as it
    was; the parts of a pinned buffer stay where its bytes are."""

    buffer: str
    parts: int

    kind: ClassVar[str] = "split"


@dataclass(frozen=True, slots=True)
class Drop:
    """Leave `buffer` out."""

    buffer: str

    kind: ClassVar[str] = "drop"


@dataclass(frozen=True, slots=True)
class Shorten:
    """Let `buffer` live only for the steps `[start, end)` of its lifetime."""

    buffer: str
    start: int
    end: int

    kind: ClassVar[str] = "lifetime"


@dataclass(frozen=True, slots=True)
class Align:
    """Let the offset of `buffer` be a multiple of `alignment` bytes, whatever it was before."""

    buffer: str
    alignment: int

    kind: ClassVar[str] = "align"


Edit = Pin | Resize | Split | Drop | Shorten | Align
KINDS: dict[str, type[Edit]] = {each.kind: each for each in (Pin, Resize, Split, Drop, Shorten, Align)}
"""The edits by the word that stands for each in files, addresses and errors."""
MOST_PARTS = 4096
"""Into how many parts one edit may split a buffer."""
