"""Graphs as a store keeps them: memplan JSON under the SHA-256 of its bytes, compressed by Zstandard."""

from __future__ import annotations

import hashlib

from memplan_engine.errors import InputError, MissingDependencyError
from memplan_engine.formats.memplan_json.json_file import loads
from memplan_engine.formats.read_limits import MAX_TEXT_BYTES
from memplan_engine.graph import Graph

LEVEL = 12
"""Of Zstandard: a graph of 1,000 ops takes some ten milliseconds, hardly more bytes than at its highest."""


def digest_of(data: bytes) -> str:
    """SHA-256 of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def compressed(data: bytes) -> bytes:
    """`data` as one frame that says how long it is.

    Raises
    ------
    MissingDependencyError: zstandard is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise MissingDependencyError("zstandard", "history", "a store of history") from None
    return zstandard.ZstdCompressor(level=LEVEL).compress(data)


def restored(blob: bytes, digest: str, source: str) -> bytes:
    """What `blob` was made from, which has to have `digest`; `source` names it in errors.

    Raises
    ------
    InputError: no such frame, one that would not fit a file of ours, or bytes of another digest.
    MissingDependencyError: zstandard is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise MissingDependencyError("zstandard", "history", "a store of history") from None
    place = f"graph {digest[:12]}"
    try:
        size = zstandard.frame_content_size(blob)
        if not 0 <= size <= MAX_TEXT_BYTES:
            raise InputError(source, place, f"{size} bytes", f"0 to {MAX_TEXT_BYTES} bytes of JSON")
        data = zstandard.ZstdDecompressor().decompress(blob, max_output_size=size)
    except zstandard.ZstdError as error:
        raise InputError(source, place, f"bytes that are damaged ({error})", "a Zstandard frame") from None
    if digest_of(data) != digest:
        raise InputError(source, place, f"bytes with the digest {digest_of(data)[:12]}", "its own")
    return data


def graph_from_json(data: bytes, source: str) -> Graph:
    """The graph that `data` says in memplan JSON; raises InputError where it says none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(source, "", "bytes that are no text in UTF-8", "memplan JSON") from None
    value = loads(text, source)
    if not isinstance(value, Graph):
        raise InputError(source, "", "memplan JSON of something else", "a graph")
    return value
