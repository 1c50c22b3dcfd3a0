"""Files → Graph, Problem or Plan, and back: the registry of readers and writers.

A reader is named as "module:class" and imported when a file is to be read: a program that only plans waits
for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from memplan_engine.banked.banked_plan import BankedPlan
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.importer import HEAD_BYTES, Importer, ImportOptions, Loaded, RecordingImporter
from memplan_engine.formats.read_limits import read_head
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import Snapshot
from memplan_engine.system import by_name, installed, write_target

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
    "written_suffixes",
]

READERS = (
    "memplan_engine.torch_capture.pt2_reader:Pt2Importer",
    "memplan_engine.formats.allocator_files.allocator_readers:ProfilerImporter",
    "memplan_engine.formats.memplan_json.observation_file:ObservationImporter",
    "memplan_engine.formats.memplan_json.json_file:JsonImporter",
    "memplan_engine.formats.allocator_files.allocator_readers:SnapshotImporter",
    "memplan_engine.formats.onnx_model.onnx_reader:OnnxImporter",
    "memplan_engine.formats.tflite_model.tflite_reader:TfliteImporter",
    "memplan_engine.formats.executorch_program.pte_reader:PteImporter",
    "memplan_engine.formats.xla_dump.xla_reader:XlaImporter",
    "memplan_engine.formats.csv_tables.csv_reader:CsvImporter",
)
"""In the order in which they are asked whether a file is theirs: the strictest first."""
IMPORTERS, EXPORTERS = "memplan.importers", "memplan.exporters"
"""Groups of entry points in which other packages name theirs: an `Importer` or its class; a function of a
problem or a plan and a path, called as the suffix of the files that it writes, without the dot."""
WRITERS = {
    ".json": "memplan_engine.formats.memplan_json.json_file:write_json",
    ".csv": "memplan_engine.formats.csv_tables.csv_writer:write_csv",
}
PLANNED_MODELS = {
    ".onnx": "memplan_engine.formats.onnx_model.onnx_order:write_planned_model",
    ".tflite": "memplan_engine.formats.tflite_model.offline_plan:write_offline_plan",
}
"""Models that take the offsets of a plan, which stands in a file of the same kind."""


@cache
def _ours() -> tuple[Importer, ...]:
    return tuple(by_name(name)() for name in READERS)


@cache
def _theirs() -> tuple[Importer, ...]:
    found: dict[str, Importer] = {}
    for entry, importer in installed(IMPORTERS):
        if importer.name in found or any(importer.name == each.name for each in _ours()):
            raise MemplanError(f"entry point {entry.name}: the importer name {importer.name!r} is in use")
        found[importer.name] = importer
    return tuple(found.values())


def importers() -> tuple[Importer, ...]:
    """All readers: those of READERS in their order, then those of other packages.

    Raises
    ------
    MemplanError: another package's importer cannot be loaded, or takes a name that is in use.
    """
    return (*_ours(), *_theirs())


@cache
def _their_writers() -> dict[str, Callable[[Problem | Plan, Path], None]]:
    found: dict[str, Callable[[Problem | Plan, Path], None]] = {}
    for entry, writer in installed(EXPORTERS):
        suffix = f".{entry.name.lower()}"
        if suffix in WRITERS:
            raise MemplanError(f"entry point {entry.name}: files that end in {suffix} have a writer")
        found[suffix] = writer
    return found


def written_suffixes(source: Path | None = None) -> tuple[str, ...]:
    """How names of files may end that problems and plans are written to; of a plan of a model in `source`
    that of such models, where they take offsets. Raises as `importers` and `recognise` do."""
    own = "" if source is None else f".{recognise(source).name}"
    return (*WRITERS, *([own] if own in PLANNED_MODELS else []), *_their_writers())


def recognise(path: Path | str) -> Importer:
    """The importer for a file, by its content; by its suffix only when no content is recognised, so that
    a damaged file is explained by the importer that its name calls for.

    Raises
    ------
    InputError: a missing, empty or unreadable file, a folder, or a kind that nobody knows.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    # Other packages are looked at only for what is not ours.
    for known in (_ours, _theirs):
        for importer in known():
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
    if options.bank is not None and importer.name != "json":
        raise InputError(path.name, "--in-bank", options.bank, "a plan over several banks (memplan JSON)")
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


def write(value: Graph | Problem | Plan | BankedPlan, path: Path | str, source: Path | None = None) -> None:
    """Write `value` as the suffix of `path` asks: .json, or for problems and plans .csv and what exporters of
    other packages write; a plan of the model in `source` as that model with its offsets: .onnx, .tflite.

    Raises
    ------
    InputError: another suffix, a graph as CSV, or a place that cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if isinstance(value, Graph):
        _check_suffix(path, (".json",))
    elif suffix in PLANNED_MODELS and source is not None and isinstance(value, Plan):
        _check_suffix(path, written_suffixes(source))
        by_name(PLANNED_MODELS[suffix])(source, value, path)
        return
    elif suffix not in WRITERS and not isinstance(value, BankedPlan):
        _check_suffix(path, written_suffixes())
        _their_writers()[suffix](value, path)
        return
    _check_suffix(path, tuple(WRITERS))
    by_name(WRITERS[suffix])(value, path)


def _check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(str(path), "", f"the suffix {path.suffix.lower()!r}", " or ".join(suffixes))
