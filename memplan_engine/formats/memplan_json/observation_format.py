"""The JSON of an observation: its ops and, of each level, the changes of memory, a column a field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import FailFast, Field

from memplan_engine.callers import UNKNOWN_STACK, Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_base import Count, Counts, Names, Strict, check_length
from memplan_engine.graph import MAX_BYTES
from memplan_engine.recordings.allocator_recording import MOST_DEVICES, Rows
from memplan_engine.recordings.observation import (
    CHANGE,
    CPU,
    Level,
    Observation,
    ObservedOps,
    freed_beyond,
)

MAX_INDEX = 2**31 - 1
Place = Annotated[int, Field(ge=-1, le=MAX_INDEX)]
"""A place in a list; −1 is none."""
Places = Annotated[tuple[Place, ...], FailFast()]
Sizes = Annotated[tuple[Annotated[int, Field(ge=-MAX_BYTES, le=MAX_BYTES)], ...], FailFast()]
"""Bytes: allocated where above 0, freed where below."""
Flags = Annotated[tuple[Annotated[int, Field(ge=0, le=1)], ...], FailFast()]


class FrameEntry(Strict):
    """One call: a function, its file and the line in it."""

    function: str
    file: str = ""
    line: Count = 0


class OpsEntry(Strict):
    """The ops in order, none within another; `begin` and `end` in ns since the run began. `stack` is a place
    in the file's `stacks`; without it no lines of Python were kept."""

    names: Names
    kinds: Names
    begin: Counts
    end: Counts
    stack: Places = ()


class ChangesEntry(Strict):
    """Allocations and frees in order: `time` in ns, `size` in bytes (below 0 for a free), the op that ran
    (`inside` 1) or was the last to run (0; −1 before the first), and the place of the innermost operator in
    `kernels`. `device` −1 is the CPU; without it all are."""

    time: Counts
    size: Sizes
    address: Counts
    op: Places
    inside: Flags
    kernel: Places = ()
    device: Places = ()


class LevelsEntry(Strict):
    """What was seen at each level that was observed."""

    dispatch: ChangesEntry | None = None
    allocator: ChangesEntry | None = None


class ObservationFile(Strict):
    """A file in the format memplan/observation, version 1. `stacks` are places in `frames`, the innermost
    call first."""

    format: Literal["memplan/observation"]
    version: Literal[1]
    name: str = "observation"
    nanoseconds: Count = 0
    ops: OpsEntry
    levels: LevelsEntry
    kernels: Names = ()
    frames: Annotated[tuple[FrameEntry, ...], FailFast()] = ()
    stacks: Annotated[tuple[Counts, ...], FailFast()] = ()


def observation_from(file: ObservationFile, source: str) -> Observation:
    """The checked observation; raises InputError naming what is not sound in `source`."""
    ops = ops_from(file, source)
    levels = {level: getattr(file.levels, level.value) for level in Level}
    changes = {
        level: _changes(entry, len(ops), len(file.kernels), f"levels.{level}", source)
        for level, entry in levels.items()
        if entry is not None
    }
    if not changes:
        raise InputError(source, "field levels", "no level", "dispatch, allocator or both")
    stacks = stacks_from(file, source)
    return Observation(file.name, ops, changes, file.kernels, stacks, file.nanoseconds)


def stacks_from(file: ObservationFile, source: str) -> Stacks:
    """The calls that the file has."""
    frames = tuple(Frame(entry.function, entry.file, entry.line) for entry in file.frames)
    for number, stack in enumerate(file.stacks):
        below(stack, len(frames), f"stacks[{number}]", source)
    return Stacks(frames, file.stacks)


def file_of_observation(observation: Observation) -> ObservationFile:
    """`observation` as a file."""
    ops = observation.ops
    known = ops.stack.tolist() if (ops.stack != UNKNOWN_STACK).any() else []
    return ObservationFile.model_validate(
        {
            "format": "memplan/observation",
            "version": 1,
            "name": observation.name,
            "nanoseconds": observation.nanoseconds,
            "ops": {
                "names": ops.names,
                "kinds": ops.kinds,
                "begin": tuple(ops.begin.tolist()),
                "end": tuple(ops.end.tolist()),
                "stack": tuple(known),
            },
            "levels": {level.value: _columns(rows) for level, rows in observation.changes.items()},
            "kernels": observation.kernels,
            "frames": tuple(
                {"function": frame.function, "file": frame.file, "line": frame.line}
                for frame in observation.stacks.frames
            ),
            "stacks": observation.stacks.stacks,
        }
    )


def _columns(rows: Rows) -> dict[str, Any]:
    columns = {name: tuple(rows[name].astype(np.int64).tolist()) for name in CHANGE.names or ()}
    for name, usual in (("kernel", -1), ("device", CPU)):
        if (rows[name] == usual).all():
            columns[name] = ()
    return columns


def ops_from(file: ObservationFile, source: str) -> ObservedOps:
    """The checked ops of the file."""
    entry, n = file.ops, len(file.ops.names)
    for name, column in (("kinds", entry.kinds), ("begin", entry.begin), ("end", entry.end)):
        check_length(column, n, f"ops.{name}", source)
    stack = entry.stack or (UNKNOWN_STACK,) * n
    check_length(stack, n, "ops.stack", source)
    below(stack, len(file.stacks), "ops.stack", source)
    if len(set(entry.names)) < n:
        seen: set[str] = set()
        twice = next(name for name in entry.names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(source, "field ops.names", f"{twice!r} twice", "unique names")
    columns = (np.array(column, dtype=np.int64) for column in (entry.begin, entry.end, stack))
    return ObservedOps(entry.names, entry.kinds, *columns)


def _changes(entry: ChangesEntry, ops: int, kernels: int, place: str, source: str) -> Rows:
    n = len(entry.time)
    columns = {
        "time": entry.time,
        "size": entry.size,
        "address": entry.address,
        "op": entry.op,
        "inside": entry.inside,
        "kernel": entry.kernel or (-1,) * n,
        "device": entry.device or (CPU,) * n,
    }
    rows = np.zeros(n, dtype=CHANGE)
    for name, limit in (("op", ops), ("kernel", kernels), ("device", MOST_DEVICES)):
        below(columns[name], limit, f"{place}.{name}", source)
    for name, column in columns.items():
        check_length(column, n, f"{place}.{name}", source)
        rows[name] = column
    if (total := sum(map(abs, entry.size))) > MAX_BYTES // 2:
        raise InputError(source, f"field {place}.size", f"sizes that sum to {total}", "a sum below 2^62")
    for row, allocated in freed_beyond(rows):
        found = f"{-rows['size'][row]} bytes freed"
        raise InputError(source, f"field {place}.size[{row}]", found, f"the {allocated} allocated there")
    back = np.flatnonzero(np.diff(rows["op"]) < 0)
    if len(back):
        row = int(back[0]) + 1
        found = f"{rows['op'][row]} after {rows['op'][row - 1]}"
        raise InputError(source, f"field {place}.op[{row}]", found, "changes in the order of the ops")
    wrong = np.flatnonzero((rows["inside"]) & (rows["op"] < 0))
    if len(wrong):
        raise InputError(source, f"field {place}.inside[{wrong[0]}]", "1 without an op", "0")
    if (zero := np.flatnonzero(rows["size"] == 0)).size:
        raise InputError(source, f"field {place}.size[{zero[0]}]", "0", "bytes allocated or freed")
    return rows


def below(column: Any, limit: int, place: str, source: str) -> None:
    """Raise InputError for a place in `column` that is not below `limit`."""
    for number, value in enumerate(column):
        if value >= limit:
            raise InputError(source, f"field {place}[{number}]", str(value), f"below {limit}")
