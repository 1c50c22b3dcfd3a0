"""A folder of configurations: a folder of ranks for each, named after what it was recorded from, and
`sweep.json`, which says what they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.folder_index import read_index
from memplan_engine.formats.memplan_json.ranks_folder import INDEX as RANKS_INDEX
from memplan_engine.formats.memplan_json.ranks_folder import load_ranks
from memplan_engine.recordings.configuration import Configuration
from memplan_engine.recordings.rank_run import MOST_RANKS, RankRun
from memplan_engine.system import write_atomically

INDEX = "sweep.json"
FORMAT, VERSION = "memplan/sweep", 1


def recorded(folder: Path, name: str) -> tuple[RankRun, ...] | None:
    """The ranks that `folder` keeps under `name`, None where there are none that are whole."""
    home = folder / name
    if not (home / RANKS_INDEX).is_file():
        return None
    try:
        return load_ranks(home)
    except InputError:
        return None


def write_sweep(folder: Path, script: str, configurations: Sequence[tuple[str, Configuration]]) -> None:
    """Write the index of `configurations`, each with the name of the folder of its ranks in `folder`.

    Raises
    ------
    InputError: a place that cannot be written.
    """
    rows = [
        {
            "values": each.values,
            "arguments": each.arguments,
            "world_size": each.world_size,
            "device": each.device,
            **({"error": each.error} if each.error else {"folder": name}),
        }
        for name, each in configurations
    ]
    said = {"format": FORMAT, "version": VERSION, "script": script, "configurations": rows}
    write_atomically(folder / INDEX, json.dumps(said, indent=1).encode())


def is_sweep(folder: Path) -> bool:
    """Whether `folder` is one of configurations."""
    return (folder / INDEX).is_file()


def load_sweep(folder: Path) -> tuple[Configuration, ...]:
    """The configurations that `write_sweep` wrote, in its order.

    Raises
    ------
    InputError: no such index, or another one; ranks that are broken.
    """
    return tuple(_configuration(folder, numbers, name) for numbers, name in _rows(folder))


def sweep_names(folder: Path) -> dict[str, str]:
    """Of each configuration that has ranks the name of their folder, and its own; ranks are not read.

    Raises
    ------
    InputError: no such index, or another one.
    """
    return {
        _checked(folder, name): Configuration(**numbers).name
        for numbers, name in _rows(folder)
        if not numbers["error"]
    }


def _rows(folder: Path) -> list[tuple[dict[str, Any], Any]]:
    return read_index(
        folder / INDEX,
        (FORMAT, VERSION),
        "memplan devices --sweep",
        "configurations",
        lambda said: [(_numbers(row), row.get("folder")) for row in said["configurations"]],
    )


def _numbers(row: Any) -> dict[str, Any]:
    world = int(row["world_size"])
    if not 1 <= world <= MOST_RANKS:
        raise ValueError(f"world_size: found {world:,}, expected 1 to {MOST_RANKS:,}")
    return {
        "values": {str(name): value for name, value in row["values"].items()},
        "arguments": tuple(map(str, row["arguments"])),
        "world_size": world,
        "device": str(row["device"]),
        "error": str(row.get("error", "")),
    }


def _configuration(folder: Path, numbers: dict[str, Any], name: Any) -> Configuration:
    if numbers["error"]:
        return Configuration(**numbers)
    return Configuration(runs=load_ranks(folder / _checked(folder, name)), **numbers)


def _checked(folder: Path, name: Any) -> str:
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise InputError(str(folder / INDEX), "folder", repr(name), "the name of a folder in this one")
    return name
