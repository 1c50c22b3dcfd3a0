"""What can be opened: examples, files named on the command line, and uploads that are kept by content.

A recording of an allocator opens as the placement that was recorded, of one device and stream.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import filterfalse
from pathlib import Path

import memplan_examples
from platformdirs import user_cache_path

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
from memplan_engine.formats.memplan_json.observation_file import is_observation
from memplan_engine.formats.memplan_json.run_files import is_run
from memplan_engine.formats.read_limits import read_head
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.recordings.allocator_recording import (
    DEFAULT_POOL,
    Recording,
    held,
    pool_text,
    pools,
    streams,
)
from memplan_engine.system import write_atomically
from memplan_engine.units import format_bytes

MOST_UPLOADS = 50
LONGEST_NAME = 60
"""Letters of an upload's name that are kept: names end at 255 bytes, and a letter may take four."""
DRAFT_SECONDS = 3600.0
"""Nobody writes for so long: what is older was left by a server that was killed."""
UPLOADS = ("upload", "run")
"""What can be uploaded, as keys begin: documents, and runs, which the page Run shows."""
EXAMPLE = "example:gpt2"


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is to be opened: `dims` are bound while it is read (ONNX), `how` is done with what was
    read; `part` is the device and stream of a recording, as `recordings.part_text` writes it."""

    dims: tuple[tuple[str, int], ...] = ()
    offsets_as_plan: bool = False
    how: Preparation = field(default_factory=Preparation)
    part: str = ""


AS_IT_IS = Options()


@dataclass(frozen=True, eq=False)
class Document:
    """An opened file: what was `loaded` from it, the problem made of that, the graph behind the problem, the
    finished plan that the file brought, if any, and what the header of an example says that it shows.
    """

    key: str
    label: str
    loaded: Loaded
    options: Options
    problem: Problem
    about: About = field(default_factory=About, repr=False)

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
    return next((key for key, path in _given().items() if not is_run(_head(path))), EXAMPLE)


def catalogue() -> dict[str, str]:
    """Every document that can be chosen, key → label: command-line files, uploads of late, examples."""
    labels = {key: path.name for key, path in _given().items() if not is_run(_head(path))}
    kept = uploads()
    names = Counter(kept.values())
    labels |= {
        key: name if names[name] == 1 else f"{name} ({key.partition(':')[2][:4]})"
        for key, name in kept.items()
    }
    return labels | {f"example:{path.stem}": _title(path) for path in memplan_examples.examples()}


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
    elif kind in UPLOADS and re.fullmatch(r"[0-9a-f]{16}", name):
        candidates = sorted(filterfalse(_is_draft, (_folder(kind) / name).glob("*")))
    if not candidates:
        raise InputError(key[:80], "", "no such document", "one of those in the list, or a new upload")
    return candidates[0]


def version_of(key: str) -> tuple[int, int]:
    """Changes when the file behind `key` does: time of change and size; InputError when there is none."""
    try:
        status = path_of(key).stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def keep_upload(name: str, content: bytes, kind: str = "upload") -> tuple[str, bool]:
    """Keep an uploaded file, of a `kind` among UPLOADS; its key, and whether it is new. The oldest beyond
    MOST_UPLOADS are removed, as is what servers that were killed have left half written. Raises InputError
    where nothing can be kept."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    folder = _folder(kind) / digest
    safe = re.sub(r"[^\w.+-]", "_", Path(name).name)[-LONGEST_NAME:].lstrip(".") or "upload"
    is_new = not (folder / safe).exists()
    if is_new:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for stale in filterfalse(_is_draft, folder.iterdir()):
                stale.unlink(missing_ok=True)
        except OSError as error:
            expected = "a folder for uploads that may be written; XDG_CACHE_HOME names another"
            raise InputError(str(folder), "", repr(error.strerror), expected) from error
        write_atomically(folder / safe, content)
        drafts = [path for path in filter(_is_draft, _kept(kind)) if _age(path) > DRAFT_SECONDS]
        for old in (*_uploads(kind)[MOST_UPLOADS:], *drafts):
            _remove(old)
    return f"{kind}:{digest}", is_new


def keep_readable(name: str, content: bytes, read: Callable[[str], object], kind: str = "upload") -> str:
    """Keep an uploaded file that `read` can open; its key. Raises MemplanError for another, which is
    forgotten again."""
    key, is_new = keep_upload(name, content, kind)
    try:
        read(key)
    except MemplanError:
        if is_new:
            drop_upload(key)
        raise
    return key


def given_runs() -> dict[str, str]:
    """The runs and observations among the files of the command line, key → file name."""
    heads = {key: (path.name, _head(path)) for key, path in _given().items()}
    return {key: name for key, (name, head) in heads.items() if is_run(head) or is_observation(head)}


def uploads(kind: str = "upload") -> dict[str, str]:
    """The uploads of a kind, key → file name, the latest first."""
    return {f"{kind}:{path.parent.name}": path.name for path in _uploads(kind)}


def drop_upload(key: str) -> None:
    """Forget an upload that cannot be opened; anything else is left alone."""
    if key.partition(":")[0] in UPLOADS:
        _remove(path_of(key))


def read_document(
    key: str, dims: tuple[tuple[str, int], ...], offsets_as_plan: bool, part: str = ""
) -> tuple[Loaded, About]:
    """What the file holds; a MemplanError names the file as the person knows it. A recording opens as the
    placement that was recorded."""
    path = path_of(key)
    try:
        if is_recording(path):
            return recorded_plan(read_recording(path, version_of(key), part)), About()
        loaded = load(path, ImportOptions(dims=dict(dims), offsets_as_plan=offsets_as_plan))
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


def _remove(path: Path) -> None:
    # Another session may do the same, or keep something beside it.
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _store() -> Path:
    return user_cache_path("memplan") / "uploads"


def _folder(kind: str) -> Path:
    """Where uploads of a kind lie."""
    return _store() if kind == UPLOADS[0] else _store().with_name(f"{kind}s")


def _uploads(kind: str) -> list[Path]:
    return sorted(filterfalse(_is_draft, _kept(kind)), key=_age)


def _kept(kind: str) -> Iterator[Path]:
    return _folder(kind).glob("*/*")


def _is_draft(path: Path) -> bool:
    """Whether `path` is what `write_atomically` has not finished: names of uploads begin with no dot."""
    return path.name.startswith(".")


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _title(path: Path) -> str:
    return path.stem.replace("teaching_", "teaching: ").replace("_", " ")


_PART = re.compile(
    r"device=(-?[0-9]{1,4})(?:,stream=([0-9]{1,18}))?(?:,pool=([0-9]{1,18}):([0-9]{1,18}))?", re.ASCII
)


def is_recording(path: Path) -> bool:
    """Whether the file at `path` is one, by its content."""
    try:
        kind = recognise(path).name
    except MemplanError:
        return False
    if kind == "profiler":
        return is_trace(head_of(path, read_head(path, HEAD_BYTES), HEAD_BYTES).lstrip())
    return kind in ("pickle", "observation")


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
    return "the common pool" if pool == DEFAULT_POOL else f"private pool {pool_text(pool)}"


@lru_cache(2)
def _snapshot(path: Path, version: tuple[int, int]) -> Snapshot:
    """The file, read once for all of its parts; `version` changes with it."""
    return load_recording(path)
