"""Graph, Problem or Plan → files. One target a file; all are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.exporters.csv_file import write_csv
from memplan_engine.exporters.json_file import write_json
from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem

__all__ = ["check_target", "write", "write_csv", "write_json"]


def check_target(path: Path | str, suffixes: tuple[str, ...], source: Path | None = None) -> None:
    """Raise InputError, before long work, when `path` could not be written: its suffix is none of `suffixes`,
    its folder is not there, or it is the very file that was read."""
    path = Path(path)
    _check_suffix(path, suffixes)
    if not path.parent.is_dir():
        raise InputError(str(path), "", "a folder that does not exist", "an existing folder")
    if source is not None and path.exists() and path.samefile(source):
        raise InputError(str(path), "", "the input file as the output", "another name: it would be lost")


def write(value: Graph | Problem | Plan, path: Path | str) -> None:
    """Write `value` as the suffix of `path` asks: .json, or .csv for problems and plans.

    Raises
    ------
    InputError: another suffix, a graph as CSV, or a place that cannot be written.
    """
    path = Path(path)
    if isinstance(value, Graph):
        _check_suffix(path, (".json",))
        write_json(value, path)
        return
    _check_suffix(path, (".json", ".csv"))
    if path.suffix.lower() == ".json":
        write_json(value, path)
    else:
        write_csv(value, path)


def _check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(str(path), "", f"the suffix {path.suffix.lower()!r}", " or ".join(suffixes))
