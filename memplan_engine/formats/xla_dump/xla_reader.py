"""Dumps of XLA, as graphs with its own plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.read_limits import read_bytes, read_text
from memplan_engine.formats.xla_dump import hlo_proto, hlo_text
from memplan_engine.formats.xla_dump.assignment_text import BEGIN, read_assignment
from memplan_engine.formats.xla_dump.hlo_module import Dump, check_dump
from memplan_engine.formats.xla_dump.hlo_proto import read_proto
from memplan_engine.formats.xla_dump.hlo_text import read_hlo
from memplan_engine.formats.xla_dump.xla_graph import XlaGraph
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan

HLO = "HloModule "
BESIDE = "-buffer-assignment"
"""What the name of an assignment has more than that of its HLO."""
MOST_TEXT = 4 * hlo_text.MOST_BYTES
"""Bytes of a text file."""


@dataclass(frozen=True, slots=True)
class XlaImporter:
    """Text: `NAME.txt`, scheduled HLO, and `NAME-buffer-assignment.txt` beside it, either of which may be
    named, or both one behind the other in one file. Binary: an HloProto, which holds both."""

    name: str = "hlo"
    description: str = "an XLA dump after optimizations, with its buffer assignment"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By the first word, or for HloProto by its suffix and first field."""
        return head.startswith((HLO.encode(), BEGIN.encode())) or (path.suffix == ".pb" and head[:1] == b"\n")

    def load(self, path: Path, options: ImportOptions) -> Graph | Plan:
        """The graph of the module, or with `options.offsets_as_plan` XLA's own plan of it.

        Raises
        ------
        InputError: one file without the other, and as `read_hlo`, `read_assignment`, `read_proto` and
        `XlaGraph` do.
        """
        made = XlaGraph(_read(path), path.name)
        return made.plan() if options.offsets_as_plan else made.graph


def _read(path: Path) -> Dump:
    with path.open("rb") as file:
        is_text = file.read(len(BEGIN)).startswith((HLO.encode(), BEGIN.encode()))
    if not is_text:
        return read_proto(read_bytes(path, hlo_proto.MOST_BYTES), path.name)
    text = read_text(path, MOST_TEXT)
    if text.startswith(BEGIN):
        beside = path.with_name(path.name.replace(BESIDE, ""))
        hlo, assignment = _other(path, beside, "HLO"), text
    elif (behind := text.find(f"\n{BEGIN}")) >= 0:
        hlo, assignment = text[:behind], text[behind:]
    else:
        beside = path.with_name(f"{path.stem}{BESIDE}{path.suffix}")
        hlo, assignment = text, _other(path, beside, "buffer assignment")
    dump = Dump(read_hlo(hlo, path.name), read_assignment(assignment, path.name))
    return check_dump(dump, path.name)


def _other(path: Path, beside: Path, what: str) -> str:
    """The text of the file that belongs to `path`."""
    if beside == path or not beside.is_file():
        expected = f"{beside.name} beside it, its text behind this one, or the .hlo.pb that holds both"
        raise InputError(path.name, "", f"no {what}", expected)
    return read_text(beside, MOST_TEXT)
