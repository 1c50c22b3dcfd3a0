"""How long a zip's table of contents is, before Python reads it whole."""

from __future__ import annotations

import struct
from pathlib import Path

MAX_DIRECTORY_BYTES = 8 << 20
"""Of a zip's table of contents, of which Python holds some ten times as much: 70,000 records with the names
that torch gives them."""
_END, _END_64 = struct.Struct("<12sI6x"), struct.Struct("<40sQ28x")
"""The record at a zip's end, and that of one with 64-bit fields followed by its locator: the length of the
table of contents stands behind what is skipped."""
_LONGEST_COMMENT = 0xFFFF


def directory_bytes(path: Path) -> int:
    """How long the zip at `path` says that its table of contents is; 0 where it does not say."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        begin = max(0, size - _END.size - _LONGEST_COMMENT - _END_64.size)
        file.seek(begin)
        tail = file.read()
    found = 0
    for end, mark in ((_END, b"PK\5\6"), (_END_64, b"PK\6\6")):
        at = tail.rfind(mark)
        if 0 <= at <= len(tail) - end.size:
            found = max(found, end.unpack_from(tail, at)[1])
    return 0 if found == 0xFFFFFFFF else found
