"""Edits as files in memplan JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from memplan_engine.formats.memplan_json.edits_format import EditsFile, edits_from, file_of_edits
from memplan_engine.formats.memplan_json.json_base import check_head, explain, parse, render
from memplan_engine.formats.read_limits import read_text
from memplan_engine.system.write_atomically import write_atomically
from memplan_engine.what_if.edits import Edit


def dump_edits(edits: Sequence[Edit]) -> bytes:
    """`edits` as memplan JSON in UTF-8; raises InputError for a value that no edit can have."""
    try:
        return render(file_of_edits(edits), "edits")
    except ValidationError as error:
        raise explain(error, "edits") from None


def write_edits(edits: Sequence[Edit], path: Path | str) -> None:
    """Write `edits` to `path`, atomically; raises InputError when that cannot be done."""
    write_atomically(path, dump_edits(edits))


def load_edits(path: Path | str) -> tuple[Edit, ...]:
    """The edits in the file `path`; raises InputError when it is no memplan/edits, naming the field."""
    path = Path(path)
    text, source = read_text(path), path.name
    check_head(text, source, "memplan/edits")
    return edits_from(parse(EditsFile, text, source))
