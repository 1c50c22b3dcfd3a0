"""What can be opened: examples, files named on the command line, and uploads that are kept by content."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

import example_graphs
from memplan_engine import Graph, ImportOptions, InputError, MemplanError, Plan, Problem, load
from memplan_engine.lifetimes import DEFAULT_ALIGNMENT
from memplan_engine.planner import as_problem

MOST_UPLOADS = 50
DEFAULT = "example:gpt2"


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is to be opened."""

    dims: tuple[tuple[str, int], ...] = ()
    offsets_as_plan: bool = False
    plan_inputs: bool = False
    alignment: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """An opened file: its problem, the graph behind it, and the finished plan that it brought, if any."""

    key: str
    label: str
    problem: Problem
    graph: Graph | None
    plan: Plan | None


def catalogue() -> dict[str, str]:
    """Every document that can be chosen, key → label: command-line files, uploads of late, examples."""
    found = {f"file:{path.name}": path.name for path in given_files()}
    found |= {f"upload:{path.parent.name}": path.name for path in _uploads()}
    return found | {f"example:{path.stem}": _title(path) for path in example_graphs.examples()}


def given_files() -> list[Path]:
    """The files named on the command line."""
    return [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]


def path_of(key: str) -> Path:
    """The file behind a document's key; InputError when there is none, as with an old or mistyped URL."""
    kind, _, name = key.partition(":")
    candidates: list[Path] = []
    if kind == "example":
        candidates = [path for path in example_graphs.examples() if path.stem == name]
    elif kind == "file":
        candidates = [path for path in given_files() if path.name == name]
    elif kind == "upload" and re.fullmatch(r"[0-9a-f]{16}", name):
        candidates = sorted((_store() / name).glob("*"))
    if not candidates:
        raise InputError(key[:80], "", "no such document", "one of those in the list, or a new upload")
    return candidates[0]


def keep_upload(name: str, content: bytes) -> str:
    """Keep an uploaded file and give its key. The oldest uploads beyond MOST_UPLOADS are removed."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    folder = _store() / digest
    safe = re.sub(r"[^\w.+-]", "_", Path(name).name)[-100:] or "upload"
    if not (folder / safe).exists():
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.iterdir():
            stale.unlink()
        part = folder / f"{safe}.part"
        part.write_bytes(content)
        part.rename(folder / safe)
        for old in _uploads()[MOST_UPLOADS:]:
            old.unlink(missing_ok=True)
            old.parent.rmdir()
    return f"upload:{digest}"


def open_document(key: str, options: Options) -> Document:
    """Read the document; a MemplanError names the file as the person knows it."""
    path = path_of(key)
    try:
        loaded = load(path, ImportOptions(dict(options.dims), options.offsets_as_plan))
    except MemplanError as error:
        raise MemplanError(str(error).replace(str(path), path.name)) from error
    if isinstance(loaded, Plan):
        graph = loaded.problem.origin.graph if loaded.problem.origin else None
        return Document(key, path.name, loaded.problem, graph, loaded)
    alignment = options.alignment
    if isinstance(loaded, Graph) and alignment is None:
        alignment = DEFAULT_ALIGNMENT
    problem = as_problem(loaded, alignment=alignment, plan_inputs=options.plan_inputs)
    return Document(key, path.name, problem, problem.origin.graph if problem.origin else None, None)


def _store() -> Path:
    return user_cache_path("memplan") / "uploads"


def _uploads() -> list[Path]:
    files = [path for path in _store().glob("*/*") if path.suffix != ".part"]
    return sorted(files, key=_age)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _title(path: Path) -> str:
    return path.stem.replace("teaching_", "teaching: ").replace("_", " ")
