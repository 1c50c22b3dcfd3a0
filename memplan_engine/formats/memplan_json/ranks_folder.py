"""A folder of ranks: an observation of each that was run, and `ranks.json`, which says what they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.folder_index import read_index
from memplan_engine.formats.memplan_json.observation_file import load_observation, write_observation
from memplan_engine.recordings.rank_run import MOST_RANKS, PipelineAction, RankRun
from memplan_engine.system import write_atomically

INDEX = "ranks.json"
FORMAT, VERSION = "memplan/ranks", 1
KINDS = ("F", "B", "I", "W")
"""Of actions of a pipeline: torch's letters."""


def write_ranks(runs: Sequence[RankRun], folder: Path) -> None:
    """Write `runs` to `folder`, which is made where its parent exists: the index comes last.

    Raises
    ------
    InputError: a place that cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
        # A folder that is cut short has no index, rather than one of other observations.
        (folder / INDEX).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(str(folder), "", error.strerror or str(error), "a folder that can be made") from None
    rows = []
    for run in runs:
        name = f"rank{run.rank}.json"
        write_observation(run.observation, folder / name)
        row: dict[str, Any] = {
            "rank": run.rank,
            "file": name,
            "ranks": run.ranks,
            "stages": run.stages,
            "groups": run.groups,
        }
        if run.group_sizes:
            row["group_sizes"] = run.group_sizes
        if run.actions:
            row["actions"] = [astuple(action) for action in run.actions]
        rows.append(row)
    said = {"format": FORMAT, "version": VERSION, "world_size": runs[0].world_size, "ranks": rows}
    write_atomically(folder / INDEX, json.dumps(said, indent=1).encode())


def is_ranks(folder: Path) -> bool:
    """Whether `folder` is one of ranks."""
    return (folder / INDEX).is_file()


def load_ranks(folder: Path) -> tuple[RankRun, ...]:
    """The runs that `write_ranks` wrote.

    Raises
    ------
    InputError: no such index, or another one; observations that are broken.
    """
    path = folder / INDEX
    rows = read_index(
        path,
        (FORMAT, VERSION),
        "memplan devices -o",
        "ranks",
        lambda said: [(row["file"], _numbers(said, row)) for row in said["ranks"]],
    )
    _check_ranks(path, [numbers for _, numbers in rows])
    return tuple(_run(folder, name, numbers) for name, numbers in rows)


def _check_ranks(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Raise InputError for a rank that is none of the world, or is there twice."""
    seen: set[int] = set()
    for row in rows:
        world, rank, ranks = row["world_size"], row["rank"], row["ranks"]
        if not 1 <= world <= MOST_RANKS:
            raise InputError(str(path), "world_size", f"{world:,}", f"1 to {MOST_RANKS:,}")
        wrong = [each for each in (rank, *ranks) if not 0 <= each < world]
        if wrong:
            raise InputError(str(path), "rank", f"{wrong[0]:,}", f"0 to {world - 1:,}")
        if rank not in ranks or seen & set(ranks) or len(set(ranks)) != len(ranks):
            raise InputError(str(path), f"rank {rank:,}", "ranks that are there twice", "each rank once")
        sizes = row["group_sizes"]
        if sizes and (len(sizes) != row["groups"] or not 2 <= min(sizes) <= max(sizes) <= world):
            expected = f"{row['groups']:,} groups of 2 to {world:,} ranks"
            raise InputError(str(path), f"rank {rank:,}", f"group_sizes {list(sizes)[:8]}", expected)
        counted = (row["groups"], *row["stages"], *(each.micro_batch for each in row["actions"]))
        for count in (min(counted), max(counted)):
            if not 0 <= count <= MOST_RANKS:
                found = f"stages, groups or micro-batches of {count:,}"
                raise InputError(str(path), f"rank {rank:,}", found, f"0 to {MOST_RANKS:,}")
        seen |= set(ranks)


def _numbers(said: Any, row: Any) -> dict[str, Any]:
    return {
        "rank": int(row["rank"]),
        "world_size": int(said["world_size"]),
        "ranks": tuple(map(int, row["ranks"])),
        "stages": tuple(map(int, row["stages"])),
        "groups": int(row["groups"]),
        "group_sizes": tuple(map(int, row.get("group_sizes", ()))),
        "actions": tuple(_action(each) for each in row.get("actions", ())),
    }


def _action(said: Any) -> PipelineAction:
    kind, *numbers = said
    if kind not in KINDS:
        raise ValueError(f"actions: found {str(kind)[:40]!r}, expected one of {', '.join(KINDS)}")
    stage, micro_batch, first, end = map(int, numbers)
    if min(stage, micro_batch, first) < 0 or end < first:
        raise ValueError(
            f"actions: found {numbers}, expected a stage, a micro-batch, the first op and the end"
        )
    return PipelineAction(kind, stage, micro_batch, first, end)


def _run(folder: Path, name: Any, numbers: dict[str, Any]) -> RankRun:
    if not isinstance(name, str) or Path(name).name != name:
        raise InputError(str(folder / INDEX), "file", repr(name), "the name of a file in this folder")
    observation = load_observation(folder / name)
    if observation.flow is None:
        raise InputError(str(folder / name), "flow", "none", "an observation of a predicted run")
    ops = len(observation.ops)
    if any(action.end > ops for action in numbers["actions"]):
        raise InputError(str(folder / INDEX), "actions", f"ops beyond {ops:,}", f"ops of {name}")
    return RankRun(observation=observation, **numbers)
