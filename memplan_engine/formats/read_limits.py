"""Reading files that nobody vouches for: size caps, what JSON will take in memory, and text that really is
text.

A file of up to 100 MB is read in at most 2 GB and 20 CPU seconds, or refused. `tests/formats/test_bombs.py`
reads the worst known files in 2 GB; `python -m benchmarks reading --bombs --megabytes 95` times them.
"""

from __future__ import annotations

import codecs
import sys
from dataclasses import dataclass
from pathlib import Path

from memplan_engine.errors import InputError

MAX_TEXT_BYTES = 512 * 2**20
"""The largest CSV or JSON file that is read."""
MAX_RATIO = 200
"""What unpacks to more than this many times its packed size is taken for a bomb: text like this packs 10 to
30 times, and deflate at most 1,032 times."""
MAX_JSON_MEMORY = 1280 << 20
"""Bytes that the values of a JSON text may take, by the estimates below: with the text itself, three times in
memory while it is read, and Python they stay below 2 GB."""


@dataclass(frozen=True, slots=True)
class JsonWeights:
    """Bytes that a parser holds for each object, list, field and value, at most; measured on texts of nothing
    else (`{},{},…`)."""

    objects: int
    lists: int
    fields: int
    values: int


def check_json(text: str | bytes, source: str, weights: JsonWeights, place: str = "") -> None:
    """Raise InputError where parsing `text` could take more than MAX_JSON_MEMORY, before it is parsed. Signs
    in names count as well, and a letter beyond ASCII makes all of a text larger."""
    signs = ("{", "[", '":', ",") if isinstance(text, str) else (b"{", b"[", b'":', b",")
    counts = [text.count(sign) for sign in signs]  # type: ignore[arg-type]
    each = (weights.objects, weights.lists, weights.fields, weights.values)
    nbytes = sum(count * weight for count, weight in zip(counts, each, strict=True))
    if not text.isascii():
        nbytes += 2 * (sys.getsizeof(text) - len(text)) if isinstance(text, str) else 6 * len(text)
    if nbytes > MAX_JSON_MEMORY:
        objects, lists, fields, values = counts
        found = (
            f"{objects:,} objects, {lists:,} lists, {fields:,} fields and {values:,} values, about "
            f"{nbytes / 2**20:,.0f} MiB in memory"
        )
        expected = f"at most {MAX_JSON_MEMORY >> 20:,} MiB: a part of it, or a list of buffers as CSV"
        raise InputError(source, place, found, expected)


def file_size(path: Path) -> int:
    """Bytes of the regular file at `path`, at least 1; raises InputError when there is none to read."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if path.is_dir():
        raise InputError(str(path), "", "a folder", "a file")
    if not path.is_file():
        raise InputError(str(path), "", "something other than a regular file", "a file")
    if found.st_size == 0:
        raise InputError(str(path), "", "an empty file", "some content")
    return found.st_size


def read_head(path: Path, nbytes: int) -> bytes:
    """The first `nbytes` bytes of the file; raises InputError when there is none to read."""
    file_size(path)
    try:
        with path.open("rb") as file:
            return file.read(nbytes)
    except OSError as error:
        raise unreadable(path, error) from None


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole file; raises InputError when it is missing, empty, or larger than `limit` bytes."""
    size = file_size(path)
    if size > limit:
        raise InputError(path.name, "", f"a file of {size:,} bytes", f"at most {limit:,}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def read_text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The whole file as text, without its byte order mark; raises InputError where it is not UTF-8."""
    data = read_bytes(path, limit).removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            path.name, f"line {line}, byte {error.start}", f"0x{data[error.start]:02x}", "text in UTF-8"
        ) from None
    at = text.find("\0")
    if at >= 0:
        raise InputError(path.name, f"line {text.count(chr(10), 0, at) + 1}", "a NUL byte", "text")
    return text


def unreadable(path: Path, error: OSError | ValueError) -> InputError:
    """The InputError for a file that the system will not give us."""
    if isinstance(error, FileNotFoundError):
        return InputError(str(path), "", "no such file", "the path of a file")
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(str(path), "", f"{reason!r} on reading", "a readable file")
