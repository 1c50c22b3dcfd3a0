"""The JSON of edits: what is changed of a problem, one thing after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field

from memplan_engine.formats.memplan_json.json_base import Count, Strict, load_as, render
from memplan_engine.system import write_atomically
from memplan_engine.what_if.edits import KINDS, Edit


class PinEntry(Strict):
    """The buffer at `offset` bytes; null lets the strategy choose."""

    kind: Literal["pin"]
    buffer: str
    offset: Count | None


class ResizeEntry(Strict):
    """The buffer with `nbytes` bytes."""

    kind: Literal["resize"]
    buffer: str
    nbytes: Count


class SplitEntry(Strict):
    """The buffer in `parts` parts, `buffer#1`, `buffer#2` …"""

    kind: Literal["split"]
    buffer: str
    parts: Count


class DropEntry(Strict):
    """The problem without the buffer."""

    kind: Literal["drop"]
    buffer: str


class LifetimeEntry(Strict):
    """The buffer live only in the steps `[start, end)` of its lifetime."""

    kind: Literal["lifetime"]
    buffer: str
    start: Count
    end: Count


class AlignEntry(Strict):
    """The buffer at a multiple of `alignment` bytes."""

    kind: Literal["align"]
    buffer: str
    alignment: Count


Entry = Annotated[
    PinEntry | ResizeEntry | SplitEntry | DropEntry | LifetimeEntry | AlignEntry,
    Field(discriminator="kind"),
]


class EditsFile(Strict):
    """A file in the format memplan/edits, version 1; edits are made in their order."""

    format: Literal["memplan/edits"]
    version: Literal[1]
    edits: Annotated[tuple[Entry, ...], FailFast()]


def file_of_edits(edits: Sequence[Edit]) -> EditsFile:
    """`edits` as a file of their own."""
    entries = tuple({"kind": edit.kind, **asdict(edit)} for edit in edits)
    return EditsFile.model_validate({"format": "memplan/edits", "version": 1, "edits": entries})


def edits_from(file: EditsFile) -> tuple[Edit, ...]:
    """The edits of a file."""
    return tuple(KINDS[entry.kind](**entry.model_dump(exclude={"kind"})) for entry in file.edits)


def dump_edits(edits: Sequence[Edit]) -> bytes:
    """`edits` as memplan JSON in UTF-8; raises InputError for a value that no edit can have."""
    return render(lambda: file_of_edits(edits), "edits")


def write_edits(edits: Sequence[Edit], path: Path | str) -> None:
    """Write `edits` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, dump_edits(edits))


def load_edits(path: Path | str) -> tuple[Edit, ...]:
    """The edits in the file `path`; raises InputError when it is no memplan/edits, naming the field."""
    return edits_from(load_as(EditsFile, Path(path), "memplan/edits"))
