"""What the graphs of a variant, and the points of a graph, rest on, as digests: while these stay, they do."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from memplan_engine.history.git.git_commit import PACKAGES
from memplan_engine.history.history_values import HistorySeries
from memplan_engine.history.measuring import series_options
from memplan_engine.preparation import Preparation
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.local_sources import local_sources, torch_settings
from memplan_engine.zoo.zoo_values import Origin, Variant, Versions

INSTALLED = ("site-packages", "dist-packages")
"""Folders whose code goes by its versions."""


def versions_here() -> Versions:
    """Of Python and the packages that change what is captured or planned, "" for one that is not there."""
    return (("python", platform.python_version()), *((package, _version(package)) for package in PACKAGES))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def graphs_key(variant: Variant, sources: str, versions: Versions) -> str:
    """What the graphs of `variant` rest on: what makes them, with which arguments, the files of `sources`,
    the packages, and what torch's variables say."""
    said = [asdict(variant.origin), variant.device, sources, versions, torch_settings()]
    return _digest(said)


def point_key(graph: str, how: Preparation, strategy: str, nodes: int, seed: int, versions: Versions) -> str:
    """What the point of the graph with the digest `graph` rests on, in whatever series."""
    series = HistorySeries("", "", "", strategy, series_options(how, nodes, seed))
    return _digest([graph, series.digest, versions])


def run_key(said: object) -> str:
    """The key of the run that records what `said` comes to: that of an earlier one where all is the same."""
    return _digest(said)[:32]


def sources_digest(origin: Origin, folder: Path) -> str:
    """SHA-256, in hexadecimal, over the files that `origin` is made from: the Python file that has the
    factory or is the script, the user's files that it imports, or the file of a graph. Packages that are
    installed go by their versions. "" where there is no such file, which is said when it runs."""
    if origin.file:
        return _file_digest(folder / origin.file)
    return _sources_digest(origin.script or parse_factory(origin.factory).module, folder)


@cache
def _sources_digest(module: str, folder: Path) -> str:
    path = _find_module(module, folder)
    if path is None:
        return ""
    files = local_sources(path, folder) if not set(INSTALLED) & set(path.parts) else [path]
    # By their places among each other: a checkout may lie elsewhere on another machine.
    return _digest([(_place(each, folder), _file_digest(each)) for each in files])


def _place(path: Path, folder: Path) -> str:
    root = folder.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def _find_module(module: str, folder: Path) -> Path | None:
    """The file of `module`, a path or a dotted name, which is not imported."""
    if module.endswith(".py"):
        path = folder / module
        return path if path.is_file() else None
    places: list[str] | None = None
    found = None
    for part in module.split("."):
        found = PathFinder.find_spec(part, [str(folder)]) if places is None else None
        found = found or PathFinder.find_spec(part, places)
        if found is None:
            return None
        places = list(found.submodule_search_locations or [])
    origin = found.origin if found else None
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def forget_sources() -> None:
    """Look at the files again: they may have changed."""
    _sources_digest.cache_clear()


def _digest(said: object) -> str:
    text = json.dumps(said, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
