"""Files → Graph, Problem or Plan, and back: the registry of readers and writers.

A reader is named as "module:class" and imported when a file is to be read: a program that only plans waits
for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import HEAD_BYTES, Importer, ImportOptions, Loaded, RecordingImporter
from memplan_engine.formats.read_limits import read_head
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import Snapshot
from memplan_engine.system import by_name, write_target

__all__ = [
    "ImportOptions",
    "Importer",
    "Loaded",
    "check_target",
    "importers",
    "load",
    "load_recording",
    "recognise",
    "write",
]

READERS = (
    "memplan_engine.torch_capture.pt2_reader:Pt2Importer",
    "memplan_engine.formats.allocator_files.allocator_readers:ProfilerImporter",
    "memplan_engine.formats.memplan_json.observation_file:ObservationImporter",
    "memplan_engine.formats.memplan_json.json_file:JsonImporter",
    "memplan_engine.formats.allocator_files.allocator_readers:SnapshotImporter",
    "memplan_engine.formats.onnx_model.onnx_reader:OnnxImporter",
    "memplan_engine.formats.csv_tables.csv_reader:CsvImporter",
)
"""In the order in which they are asked whether a file is theirs: the strictest first."""
WRITERS = {
    ".json": "memplan_engine.formats.memplan_json.json_file:write_json",
    ".csv": "memplan_engine.formats.csv_tables.csv_writer:write_csv",
}


@cache
def importers() -> tuple[Importer, ...]:
    """All readers, in the order of READERS."""
    return tuple(by_name(name)() for name in READERS)


def recognise(path: Path | str) -> Importer:
    """The importer for a file, by its content; by its suffix only when no content is recognised, so that
    a damaged file is explained by the importer that its name calls for.

    Raises
    ------
    InputError: a missing, empty or unreadable file, a folder, or a kind that nobody knows.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    for importer in importers():
        if importer.recognises(head, path):
            return importer
    for importer in importers():
        if path.suffix.lower() == f".{importer.name}":
            return importer
    raise InputError(path.name, "", "an unknown file format", f"one of {_kinds()}")


def load(path: Path | str, options: ImportOptions | None = None) -> Loaded:
    """Read a file of any known kind; raises InputError when it is not sound."""
    path, options = Path(path), options or ImportOptions()
    importer = recognise(path)
    for option, values in (("--dim", options.dims), ("hints", options.hints)):
        if values and not importer.binds_dimensions:
            # Taken silently, what binds nothing would give a plan of other sizes than were asked for.
            found = ", ".join(f"{name}={value}" for name, value in values.items())
            raise InputError(path.name, option, found, "no dimensions to bind: only ONNX files have them")
    return importer.load(path, options)


def load_recording(path: Path | str, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """All devices of a CUDA memory snapshot, of a profiler trace with memory events, or of an observation.

    `progress` is told how many bytes of a large file have been read, and of how many.

    Raises
    ------
    InputError: a file of another kind, or one that is not sound.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    importer = next((importer for importer in importers() if importer.recognises(head, path)), None)
    if not isinstance(importer, RecordingImporter):
        expected = "a CUDA memory snapshot, a profiler trace, or an observation"
        raise InputError(path.name, "", "no recording", expected)
    return importer.read(path, progress)


def _kinds() -> str:
    return ", ".join(f"{importer.name} ({importer.description})" for importer in importers())


def check_target(path: Path | str, suffixes: tuple[str, ...], source: Path | None = None) -> None:
    """Raise InputError, before long work, when `path` could not be written: its suffix is none of `suffixes`,
    `write_target` refuses it, or it is the very file that was read."""
    path = Path(path)
    _check_suffix(path, suffixes)
    target = write_target(path)
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise InputError(
            str(path), "", "the input file as the output", "another name: the input would be overwritten"
        )


def write(value: Graph | Problem | Plan, path: Path | str) -> None:
    """Write `value` as the suffix of `path` asks: .json, or .csv for problems and plans.

    Raises
    ------
    InputError: another suffix, a graph as CSV, or a place that cannot be written.
    """
    path = Path(path)
    _check_suffix(path, (".json",) if isinstance(value, Graph) else tuple(WRITERS))
    by_name(WRITERS[path.suffix.lower()])(value, path)


def _check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(str(path), "", f"the suffix {path.suffix.lower()!r}", " or ".join(suffixes))
