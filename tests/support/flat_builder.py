"""FlatBuffers for tests, written as plainly as can be: what stands in a table comes behind it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field


@dataclass
class FlatTable:
    """Fields by their number: numbers as (struct's format, value), strings, bytes, lists of integers or of
    tables."""

    fields: dict[int, object] = field(default_factory=dict)


def flat_file(root: FlatTable, identifier: bytes = b"TFL3") -> bytes:
    """The bytes of a file with `root`."""
    out = bytearray(4) + bytearray(identifier)
    struct.pack_into("<I", out, 0, _table(out, root))
    return bytes(out)


def _pad(out: bytearray, alignment: int, behind: int = 0) -> None:
    while (len(out) + behind) % alignment:
        out.append(0)


def _table(out: bytearray, table: FlatTable) -> int:
    count = max(table.fields, default=-1) + 1
    layout = bytearray(struct.pack("<HH", 4 + 2 * count, 0) + bytes(2 * count))
    _pad(out, 8)
    start = len(out) + len(layout) + (-(len(out) + len(layout))) % 8
    body, waiting = bytearray(4), []
    for number, value in table.fields.items():
        form, content = value if isinstance(value, tuple) else ("I", 0)
        while len(body) % struct.calcsize(form):
            body.append(0)
        struct.pack_into("<H", layout, 4 + 2 * number, len(body))
        if not isinstance(value, tuple):
            waiting.append((start + len(body), value))
        body += struct.pack(f"<{form}", content)
    struct.pack_into("<H", layout, 2, len(body))
    at = len(out)
    out += layout
    _pad(out, 8)
    assert len(out) == start
    struct.pack_into("<i", body, 0, start - at)
    out += body
    for place, value in waiting:
        struct.pack_into("<I", out, place, _content(out, value) - place)
    return start


def _content(out: bytearray, value: object) -> int:
    if isinstance(value, FlatTable):
        return _table(out, value)
    if isinstance(value, str):
        value = value.encode() + b"\0"
        _pad(out, 4)
        at = len(out)
        out += struct.pack("<I", len(value) - 1) + value
        return at
    if isinstance(value, bytes):
        _pad(out, 16, 4)
        at = len(out)
        out += struct.pack("<I", len(value)) + value
        return at
    assert isinstance(value, list)
    _pad(out, 4)
    at = len(out)
    out += struct.pack("<I", len(value)) + bytes(4 * len(value))
    for number, each in enumerate(value):
        place = at + 4 + 4 * number
        if isinstance(each, FlatTable):
            struct.pack_into("<I", out, place, _table(out, each) - place)
        else:
            struct.pack_into("<i", out, place, each)
    return at
