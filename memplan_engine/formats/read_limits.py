"""Reading files that nobody vouches for: size caps, and text that really is text."""

from __future__ import annotations

import codecs
from pathlib import Path

from memplan_engine.errors import InputError

MAX_TEXT_BYTES = 512 * 2**20
"""The largest CSV or JSON file that is read."""


def file_size(path: Path) -> int:
    """Bytes of the regular file at `path`, at least 1; raises InputError when there is none to read."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if path.is_dir():
        raise InputError(str(path), "", "a folder", "a file")
    if not path.is_file():
        raise InputError(str(path), "", "something that is no regular file", "a file")
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
        return InputError(str(path), "", "no such file", "a file")
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(str(path), "", f"{reason!r} on reading", "a readable file")
