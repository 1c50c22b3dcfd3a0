"""What can be opened: examples, files named on the command line, and the visitor's uploads.

A recording of an allocator opens as the placement that was recorded, of one device and stream.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path

import memplan_examples
from memplan_dashboard.session import folder, uploads
from memplan_dashboard.session.banked_plans import banked_of, plan_of_part

from memplan_engine import (
    Graph,
    ImportOptions,
    InputError,
    MemplanError,
    Plan,
    Problem,
    Selection,
    Snapshot,
    choose_recording,
    load,
    load_recording,
    recorded_plan,
)
from memplan_engine.files import recognise
from memplan_engine.formats.about import read_about
from memplan_engine.formats.allocator_files.allocator_readers import is_trace
from memplan_engine.formats.importer import HEAD_BYTES, Loaded
from memplan_engine.formats.json_stream import head_of
from memplan_engine.formats.memplan_json.graph_format import About
from memplan_engine.formats.memplan_json.observation_file import (
    has_flow,
    is_observation,
    load_observation,
)
from memplan_engine.formats.memplan_json.ranks_archive import is_ranks_archive
from memplan_engine.formats.memplan_json.ranks_folder import INDEX
from memplan_engine.formats.memplan_json.run_files import is_run
from memplan_engine.formats.memplan_json.sweep_folder import is_sweep
from memplan_engine.formats.read_limits import read_head
from memplan_engine.history.importing import is_store
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.recordings.allocator_recording import (
    DEFAULT_POOL,
    Recording,
    held,
    pool_text,
    pools,
    streams,
)
from memplan_engine.recordings.observation import Observation
from memplan_engine.units import format_bytes

EXAMPLE = "example:gpt2"


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is to be opened: `dims` are bound while it is read (ONNX), `how` is done with what was
    read; `part` is the device and stream of a recording, as `part_text` writes it, or a bank of a plan over
    several."""

    dims: tuple[tuple[str, int], ...] = ()
    offsets_as_plan: bool = False
    how: Preparation = field(default_factory=Preparation)
    part: str = ""


AS_IT_IS = Options()
_numbers = count()


@dataclass(frozen=True, eq=False)
class Document:
    """An opened file: what was `loaded` from it, the problem made of that, the graph behind the problem, the
    finished plan that the file brought, if any, and what the header of an example says that it shows.
    `number` tells it from every other of this process, also from those that are gone.
    """

    key: str
    label: str
    loaded: Loaded
    options: Options
    problem: Problem
    about: About = field(default_factory=About, repr=False)
    number: int = field(default_factory=_numbers.__next__, repr=False)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """A buffer's index by its name."""
        return {name: index for index, name in enumerate(self.problem.names)}

    @property
    def graph(self) -> Graph | None:
        """The graph that the problem was made from."""
        return self.problem.origin.graph if self.problem.origin else None

    @property
    def knows_kinds(self) -> bool:
        """Whether anything is known of the operations that made the buffers."""
        return self.graph is not None or self.problem.callers is not None

    @property
    def plan(self) -> Plan | None:
        """The finished plan that the file brought."""
        return self.loaded if isinstance(self.loaded, Plan) else None


def first_key() -> str:
    """What opens when nothing else is asked for: the first file of the command line, or an example."""
    return next((key for key, path in _given().items() if _is_document(path)), EXAMPLE)


def _is_document(path: Path) -> bool:
    """Whether Inspect may open it: neither a run, nor ranks, nor a store, which have pages of their own."""
    has_own_page = is_run(_head(path)) or is_ranks(path) or is_sweep(path) or is_store(path)
    return not has_own_page


def is_ranks(path: Path) -> bool:
    """Whether it is what `memplan devices -o` wrote: a folder, or a zip of one."""
    return (path / INDEX).is_file() or is_ranks_archive(path)


def given_ranks() -> dict[str, str]:
    """The ranks of runs among what the command line names, key → name."""
    return {key: path.name for key, path in _given().items() if is_ranks(path)}


def given_sweeps() -> dict[str, Path]:
    """The folders of sweeps among what the command line names, by their names."""
    return {key.partition(":")[2]: path for key, path in _given().items() if is_sweep(path)}


def given_stores() -> dict[str, str]:
    """The stores of history among the files of the command line, key → name."""
    return {key: path.name for key, path in _given().items() if is_store(path)}


def catalogue() -> dict[str, str]:
    """Every document that can be chosen, key → label: command-line files, uploads of late, examples."""
    labels = {key: path.name for key, path in _given().items() if _is_document(path)}
    kept = uploads.listed()
    names = Counter(kept.values())
    labels |= {
        key: name if names[name] == 1 else f"{name} ({key.partition(':')[2][:4]})"
        for key, name in kept.items()
    }
    return labels | {f"example:{path.stem}": _title(path.stem) for path in memplan_examples.examples()}


def label_of(key: str) -> str:
    """How the document, or the run, is called that `key` stands for, also where there is none."""
    if path := _given().get(key) or uploads.find(key):
        return path.name
    kind, _, name = key.partition(":")
    return _title(name) if kind == "example" else name


def given_files() -> list[Path]:
    """The files named on the command line."""
    return [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]


def path_of(key: str) -> Path:
    """The file behind a document's key; InputError when there is none, as with an old or mistyped URL."""
    kind, _, name = key.partition(":")
    candidates: list[Path] = []
    if kind == "example":
        candidates = [path for path in memplan_examples.examples() if path.stem == name]
    elif kind == "file":
        candidates = [path for known, path in _given().items() if known == key]
    elif found := uploads.find(key) or folder.find(key):
        candidates = [found]
    if not candidates:
        where = (
            "a path below the folder" if kind == folder.KIND else "one of those in the list, or a new upload"
        )
        shown = name if kind == folder.KIND else key
        raise InputError(shown[:80], "", "no such file", where)
    return candidates[0]


def version_of(key: str) -> tuple[int, int]:
    """Changes when the file behind `key` does: time of change and size; InputError when there is none."""
    try:
        status = path_of(key).stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def given_runs() -> dict[str, str]:
    """The runs and observations among the files of the command line, key → file name."""
    heads = {key: (path.name, _head(path)) for key, path in _given().items()}
    return {key: name for key, (name, head) in heads.items() if is_run(head) or is_observation(head)}


def read_document(
    key: str, dims: tuple[tuple[str, int], ...], offsets_as_plan: bool, part: str = ""
) -> tuple[Loaded, About]:
    """What the file holds; a MemplanError names the file as the person knows it. A recording opens as the
    placement that was recorded."""
    path = path_of(key)
    try:
        if is_recording(path):
            return recorded_plan(read_recording(path, version_of(key), part)), About()
        if (banked := banked_of(path, version_of(key))) is not None:
            return plan_of_part(banked, part, path.name), About()
        chosen = parse_part(part, path.name)
        options = ImportOptions(dims=dict(dims), offsets_as_plan=offsets_as_plan, selection=chosen)
        loaded = load(path, options)
    except MemplanError as error:
        raise MemplanError(str(error).replace(str(path), path.name)) from error
    return loaded, About() if isinstance(loaded, Plan) else read_about(path)


def make_document(key: str, options: Options, loaded: Loaded, about: About) -> Document:
    """The document of what was read; a finished plan stays as it is."""
    name = path_of(key).name
    if isinstance(loaded, Plan):
        return Document(key, name, loaded, options, loaded.problem, about)
    return Document(key, name, loaded, options, prepare(loaded, options.how, name), about)


def _given() -> dict[str, Path]:
    """The files of the command line by key; of two with one name the second is "name (2)"."""
    files: dict[str, Path] = {}
    for path in given_files():
        names = (path.name, *(f"{path.name} ({n})" for n in range(2, len(files) + 2)))
        files[next(key for key in (f"file:{name}" for name in names) if key not in files)] = path
    return files


def _head(path: Path) -> bytes:
    """How a file begins; nothing of one that cannot be read, whoever opens it will say why."""
    try:
        return read_head(path, HEAD_BYTES)
    except MemplanError:
        return b""


def _title(name: str) -> str:
    return name.replace("teaching_", "teaching: ").replace("_", " ")


_PART = re.compile(
    r"device=(-?[0-9]{1,4})(?:,stream=([0-9]{1,18}))?(?:,pool=([0-9]{1,18}):([0-9]{1,18}))?", re.ASCII
)


def is_observed_graph(path: Path) -> bool:
    """Whether the file at `path` is an observation that opens as a graph, by its content."""
    try:
        return recognise(path).name == "observation" and has_flow(read_head(path, HEAD_BYTES))
    except MemplanError:
        return False


def card_of(part: str, path: Path) -> int | None:
    """Which device of a predicted run is shown: that of `part`, None for the one with the most bytes."""
    return parse_part(part, path.name).device


def calibration_of(document: Document) -> str:
    """What was said of the calibration that a predicted run was given; "" without one."""
    try:
        path = path_of(document.key)
        return _calibration(path, version_of(document.key)) if is_observed_graph(path) else ""
    except MemplanError:
        return ""


@lru_cache(4)
def _calibration(path: Path, version: tuple[int, int]) -> str:
    """Read once for all reruns of the page; `version` changes with the file."""
    flow = load_observation(path).flow
    return "" if flow is None else flow.calibration


def is_recording(path: Path) -> bool:
    """Whether the file at `path` is one, by its content."""
    try:
        kind = recognise(path).name
    except MemplanError:
        return False
    if kind == "profiler":
        return is_trace(head_of(path, read_head(path, HEAD_BYTES), HEAD_BYTES).lstrip())
    if kind == "observation":
        return not has_flow(read_head(path, HEAD_BYTES))
    return kind == "pickle"


def is_recorded(document: Document) -> bool:
    """Whether `document` is a recording, with the placement that the allocator made."""
    try:
        return document.plan is not None and is_recording(path_of(document.key))
    except MemplanError:
        return False


def is_simulated(document: Document) -> bool:
    """Whether there are requests to simulate an allocator on: those of a recording, or of a predicted run."""
    try:
        return is_recorded(document) or is_observed_graph(path_of(document.key))
    except MemplanError:
        return False


def requests_of(document: Document) -> Callable[[], tuple[Recording | Observation, int | None]]:
    """What reads the requests of a document that `is_simulated`, and of an observation the device. The file
    is found now: a thread that nobody visits finds no uploads. Both raise MemplanError."""
    path, version, part = path_of(document.key), version_of(document.key), document.options.part
    if is_observed_graph(path):
        return lambda: (load_observation(path), card_of(part, path))
    return lambda: (read_recording(path, version, part), None)


def part_text(device: int, stream: int | None = None, pool: tuple[int, int] | None = None) -> str:
    """ "device=0,stream=7,pool=0:1"."""
    asked = [f"device={device}"] + ([] if stream is None else [f"stream={stream}"])
    return ",".join(asked + ([] if pool is None else [f"pool={pool_text(pool)}"]))


def parse_part(text: str, source: str) -> Selection:
    """The same back; "" is the default. Raises InputError for what is none."""
    if not text:
        return Selection()
    match = _PART.fullmatch(text)
    if not match:
        raise InputError(source, "part", repr(text[:40]), "device=0, device=0,stream=7 or device=0,pool=0:1")
    pool = (int(match[3]), int(match[4])) if match[3] else None
    return Selection(int(match[1]), int(match[2]) if match[2] else None, pool)


def read_recording(path: Path, version: tuple[int, int], part: str) -> Recording:
    """A part of the recording; raises MemplanError."""
    return choose_recording(_snapshot(path, version), parse_part(part, path.name))


def parts(path: Path, version: tuple[int, int]) -> dict[str, str]:
    """What can be chosen, text → label: each device, its streams and memory pools where there are several."""
    labels = {}
    if is_observed_graph(path):
        # As a graph of each card.
        devices = [recording.device for recording in _snapshot(path, version).recordings]
        return {part_text(each): f"cuda:{each}" for each in devices} if len(devices) > 1 else {}
    for recording in _snapshot(path, version).recordings:
        label = f"device {recording.device}" if recording.device >= 0 else "the CPU"
        told = f"{len(recording.events):,} events"
        reserved = held(recording)[0]
        labels[part_text(recording.device)] = f"{label}: {told}" + (
            f", {format_bytes(reserved)} reserved" if reserved else ""
        )
        numbers = streams(recording)
        if len(numbers) > 1:
            labels |= {part_text(recording.device, each): f"{label}, stream {each}" for each in numbers}
        several = pools(recording)
        if len(several) > 1:
            texts = [part_text(recording.device, pool=each) for each in several]
            labels |= dict(zip(texts, [f"{label}, {_pool_words(each)}" for each in several], strict=True))
    return labels


def _pool_words(pool: tuple[int, int]) -> str:
    return "the default pool" if pool == DEFAULT_POOL else f"private pool {pool_text(pool)}"


@lru_cache(2)
def _snapshot(path: Path, version: tuple[int, int]) -> Snapshot:
    """The file, read once for all of its parts; `version` changes with it."""
    return load_recording(path)
