"""Files → Graph, Problem or Plan. One kind of file a module; `IMPORTERS` lists them."""

from __future__ import annotations

from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.importers.base import HEAD_BYTES, Importer, ImportOptions, Loaded
from memplan_engine.importers.csv_file import CsvImporter
from memplan_engine.importers.json_file import JsonImporter
from memplan_engine.importers.limits import read_head
from memplan_engine.importers.observation_file import ObservationImporter
from memplan_engine.importers.onnx_file import OnnxImporter
from memplan_engine.importers.profiler_file import ProfilerImporter
from memplan_engine.importers.pt2 import Pt2Importer
from memplan_engine.importers.snapshot_file import SnapshotImporter

__all__ = ["IMPORTERS", "ImportOptions", "Importer", "Loaded", "load", "recognise"]

IMPORTERS: tuple[Importer, ...] = (
    Pt2Importer(),
    ProfilerImporter(),
    ObservationImporter(),
    JsonImporter(),
    SnapshotImporter(),
    OnnxImporter(),
    CsvImporter(),
)
"""In the order in which they are asked whether a file is theirs: the strictest first."""


def recognise(path: Path | str) -> Importer:
    """The importer for a file, by its content; by its suffix only when no content is recognised, so that
    a damaged file is explained by the importer that its name calls for.

    Raises
    ------
    InputError: a missing, empty or unreadable file, a folder, or a kind that nobody knows.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    for importer in IMPORTERS:
        if importer.recognises(head, path):
            return importer
    for importer in IMPORTERS:
        if path.suffix.lower() == f".{importer.name}":
            return importer
    raise InputError(path.name, "", "a kind of file that is not known", f"one of {_kinds()}")


def load(path: Path | str, options: ImportOptions | None = None) -> Loaded:
    """Read a file of any known kind; raises InputError when it is not sound."""
    path, options = Path(path), options or ImportOptions()
    importer = recognise(path)
    for option, values in (("--dim", options.dims), ("hints", options.hints)):
        if values and not isinstance(importer, OnnxImporter):
            # Taken silently, what binds nothing would give a plan of other sizes than were asked for.
            given = ", ".join(f"{name}={value}" for name, value in values.items())
            raise InputError(path.name, option, given, "no dimensions to bind: only ONNX files have them")
    return importer.load(path, options)


def _kinds() -> str:
    return ", ".join(f"{importer.name} ({importer.description})" for importer in IMPORTERS)
