"""The edits: each changes one buffer of a problem, which it names.

On one line, for addresses: `resize:conv1=4096;drop:x;pin:y=0;lifetime:z=3:9`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from memplan_engine.errors import InputError


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
KINDS: dict[str, type[Edit]] = {edit.kind: edit for edit in (Pin, Resize, Split, Drop, Shorten, Align)}
"""The edits by the word that stands for each in files, addresses and errors."""
MOST_PARTS = 4096
"""Into how many parts one edit may split a buffer."""


MOST_EDITS = 200
"""How many edits a line may hold."""
FREE_WORD = "free"
FORM = "KIND:NAME or KIND:NAME=VALUE, separated by semicolons"
_ESCAPED = re.compile(r"[%;=]")
_CODE = re.compile(r"%(25|3B|3D)")
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


def edits_text(edits: Sequence[Edit]) -> str:
    """`edits` on one line, which `parse_edits` reads back; %, ; and = in names become %25, %3B and %3D."""
    return ";".join(f"{edit.kind}:{_name(edit.buffer)}{_value(edit)}" for edit in edits)


def edit_argument(edit: Edit) -> tuple[str, str]:
    """`edit` as `memplan what-if` takes it: ("--resize", "x=64")."""
    return f"--{edit.kind}", f"{edit.buffer}{_value(edit)}"


def parse_edits(text: str, source: str = "edits") -> tuple[Edit, ...]:
    """The edits on a line, none for an empty one; raises InputError naming `source` and what is no edit."""
    parts = text.split(";") if text else []
    if len(parts) > MOST_EDITS:
        raise InputError(source, "", f"{len(parts)} edits", f"at most {MOST_EDITS}")
    return tuple(_edit(part, number, source) for number, part in enumerate(parts, 1))


def parse_edit(kind: str, name: str, value: str, source: str) -> Edit:
    """One edit from the text of its value: bytes, `free`, parts, or START:END; raises InputError naming
    `source`."""
    if kind == Drop.kind:
        if value:
            raise InputError(source, "", repr(value[:40]), "a name only")
        return Drop(name)
    if kind == Pin.kind and value == FREE_WORD:
        return Pin(name, None)
    if kind == Shorten.kind:
        start, colon, end = value.partition(":")
        if not colon:
            raise InputError(source, "", repr(value[:40]), "START:END in steps")
        return Shorten(name, _whole(start, source, "START:END"), _whole(end, source, "START:END"))
    expected = f"a whole number or {FREE_WORD}" if kind == Pin.kind else "a whole number"
    of_number = {edit.kind: edit for edit in (Pin, Resize, Split, Align)}
    return of_number[kind](name, _whole(value, source, expected))


def _edit(part: str, number: int, source: str) -> Edit:
    kind, colon, rest = part.partition(":")
    name, _, value = rest.partition("=")
    place = f"edit {number}"
    if not colon or not name or kind not in KINDS:
        shown = repr(part if len(part) <= 40 else f"{part[:39]}…")
        raise InputError(source, place, shown, f"{FORM}; the kinds are {', '.join(KINDS)}")
    plain = _CODE.sub(lambda code: chr(int(code[1], 16)), name)
    return parse_edit(kind, plain, value, f"{source}: {place} ({kind})")


def _whole(text: str, source: str, expected: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InputError(source, "", repr(text[:40]), expected)
    return int(text)


def _name(name: str) -> str:
    return _ESCAPED.sub(lambda sign: f"%{ord(sign[0]):02X}", name)


def _value(edit: Edit) -> str:
    match edit:
        case Drop():
            return ""
        case Pin(_, offset):
            return f"={FREE_WORD if offset is None else offset}"
        case Shorten(_, start, end):
            return f"={start}:{end}"
        case Resize(_, number) | Split(_, number) | Align(_, number):
            return f"={number}"
