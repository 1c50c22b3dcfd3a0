"""JSON read piece by piece, plain or compressed: a list of objects without ever having it whole."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from memplan_engine.errors import InputError
from memplan_engine.formats.read_limits import (
    MAX_RATIO,
    MAX_TEXT_BYTES,
    JsonWeights,
    check_json,
    file_size,
    unreadable,
)

CHUNK = 1 << 20
MAX_OBJECT = 16 << 20
"""Characters of one object in a list."""
MAX_PLAIN_BYTES = MAX_TEXT_BYTES
"""Of a compressed file, unpacked; one that is not compressed says by its length how long one will wait."""
LEAST_OBJECT = 64
"""Characters of an object in a list, on average. The shortest events of a trace, those of memplan's own,
have some 85; what took seconds to read and says nothing has 3."""
FREE_OBJECTS = 300_000
"""So many may be shorter."""
PLAIN = JsonWeights(objects=72, lists=72, fields=280, values=48)
"""Of Python's own parser: a dict takes 232 bytes from its first field on, a float or a text its 24 to 60."""
GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int, Callable[[], int]]]:
    """The file as it is or unpacked, its bytes on the disk, and a function that says how many of them have
    been read; raises InputError for a file that cannot be read, or is packed wrongly, wherever that turns
    out."""
    size = file_size(path)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            # What it reads from is closed here.
            file = gzip.open(raw) if packed else raw  # noqa: SIM115
            yield file, size, raw.tell  # type: ignore[misc]
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(path.name, "", f"damaged compression ({error})", "a whole gzip file") from None
    except OSError as error:
        raise unreadable(path, error) from None


def head_of(path: Path, head: bytes, nbytes: int) -> bytes:
    """The first `nbytes` bytes behind `head`, unpacked where it is packed; b"" where that cannot be done."""
    if head[:2] != GZIP:
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, nbytes)
    except zlib.error:
        return b""


def read_json(path: Path, limit: int) -> Any:
    """The whole file, of at most `limit` bytes when unpacked."""
    with opened(path) as (file, size, _):
        data = file.read(limit + 1)
        if isinstance(file, gzip.GzipFile):
            check_ratio(len(data), size, path.name)
    if len(data) > limit:
        raise InputError(path.name, "", f"more than {limit:,} bytes", f"at most {limit:,}")
    return parse_plain(data, path.name)


def parse_plain(data: bytes, source: str, place: str = "") -> Any:
    """The value that the JSON `data` stands for; raises InputError for broken JSON, and for more of it than
    memory should hold."""
    check_json(data, source, PLAIN, place)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(source, place, f"broken JSON ({error})", "JSON") from None


def objects(path: Path, key: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Any]:
    """The elements of the list under `key` of the object that the file holds, one after the other.

    Raises
    ------
    InputError: no such list, an element that is no object, that is broken or of more than MAX_OBJECT
        characters, objects of less than LEAST_OBJECT on average, a file that ends before the list does, one
        that unpacks to more than MAX_RATIO times its length or to more than MAX_PLAIN_BYTES.
    """
    with opened(path) as (file, size, place):
        packed = size if isinstance(file, gzip.GzipFile) else None
        reader = _Reader(file, path.name, lambda: progress(place(), size) if progress else None, packed)
        reader.skip_to(key)
        yield from reader.elements()


def check_ratio(plain: int, packed: int, source: str) -> None:
    """Raise InputError where `packed` bytes have become more than MAX_RATIO times as many `plain` ones."""
    if plain > CHUNK + MAX_RATIO * packed:
        found = f"{plain:,} bytes or more packed into {packed:,}"
        raise InputError(source, "", found, f"a packing ratio of at most {MAX_RATIO} (a bomb?)")


_BLANKS = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[][{}]', re.DOTALL)
"""A string, which may end beyond the window, or a bracket."""


class _Reader:
    """A window of text that moves through the file, of `packed` bytes where it is compressed."""

    def __init__(self, file: BinaryIO, source: str, report: Callable[[], object], packed: int | None) -> None:
        self.file, self.source, self.report, self.packed = file, source, report, packed
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.text, self.at, self.read = "", 0, 0

    def more(self) -> bool:
        """Whether there was more text to read; drops what was passed."""
        data = self.file.read(max(CHUNK, len(self.text) - self.at))
        self.read += len(data)
        if self.packed is not None:
            check_ratio(self.read, self.packed, self.source)
            if self.read > MAX_PLAIN_BYTES:
                found = f"more than {MAX_PLAIN_BYTES:,} bytes when unpacked"
                raise self.error(found, "the unpacked file, whose length says how long it will take")
        self.text, self.at = self.text[self.at :] + self.decode(data, not data), 0
        self.report()
        return bool(data)

    def error(self, found: str, expected: str) -> InputError:
        """The error for what stands in the window."""
        return InputError(self.source, "", found, expected)

    def skip_to(self, key: str) -> None:
        """Go into the list under `key` of the outermost object: a value in it may have the same key."""
        text, depth = f'"{key}"', 0
        while True:
            found = _TOKEN.search(self.text, self.at)
            if found is None or found.end() == len(self.text):
                # It may go on in what follows.
                self.at = len(self.text) if found is None else found.start()
                if self.more():
                    continue
                if found is None or found[0][0] not in "{[":
                    raise self.error(f"no {text}", "a list of that name")
            self.at = found.end()
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
            if depth == 1 and found[0] == text and self.next_sign() == ":":
                self.at += 1
                break
        if self.next_sign() != "[":
            raise self.error(f"{text} without a list", "a list of events")
        self.at += 1

    def next_sign(self) -> str:
        """The next character that is no blank, "" at the end."""
        while True:
            self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def elements(self) -> Iterator[Any]:
        """What comes up to the closing bracket."""
        decoder = json.JSONDecoder()
        count, is_behind = 0, False
        while (sign := self.next_sign()) != "]":
            if not sign:
                raise self.error("the end of the file", "the rest of the list: it was cut short")
            if sign != ("," if is_behind else "{"):
                expected = "a comma" if is_behind else "an object"
                raise self.error(f"broken JSON, {sign!r} behind {count:,} objects of the list", expected)
            if is_behind:
                self.at, is_behind = self.at + 1, False
                continue
            try:
                element, self.at = decoder.raw_decode(self.text, self.at)
            except RecursionError:
                raise self.error("values nested without end", "events") from None
            except ValueError as error:
                if len(self.text) - self.at > MAX_OBJECT or not self.more():
                    found = "broken JSON" if self.text[self.at :].strip() else "the end of the file"
                    raise self.error(f"{found} ({error})", "the rest of the list") from None
                continue
            count, is_behind = count + 1, True
            if (count - FREE_OBJECTS) * LEAST_OBJECT > self.read:
                found = f"{count:,} objects in {self.read:,} bytes"
                raise self.error(found, f"events, which have at least {LEAST_OBJECT} on average")
            yield element
