"""Edits on one line, for addresses: `resize:conv1=4096;drop:x;pin:y=0;lifetime:z=3:9`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memplan_engine.errors import InputError
from memplan_engine.what_if.edits import KINDS, Align, Drop, Edit, Pin, Resize, Shorten, Split

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
            raise InputError(source, "", repr(value[:40]), "a name alone")
        return Drop(name)
    if kind == Pin.kind and value == FREE_WORD:
        return Pin(name, None)
    if kind == Shorten.kind:
        start, colon, end = value.partition(":")
        if not colon:
            raise InputError(source, "", repr(value[:40]), "START:END in steps")
        return Shorten(name, _whole(start, source, "START:END"), _whole(end, source, "START:END"))
    number = _whole(value, source, f"a whole number or {FREE_WORD}" if kind == Pin.kind else "a whole number")
    if kind == Pin.kind:
        return Pin(name, number)
    if kind == Resize.kind:
        return Resize(name, number)
    return Split(name, number) if kind == Split.kind else Align(name, number)


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
