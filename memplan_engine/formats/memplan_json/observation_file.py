"""Observations as files: memplan JSON, which opens as buffers, and traces for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import ImportOptions, Loaded, RecordingImporter, says_format
from memplan_engine.recordings.allocator_recording import Rows, Selection, Snapshot
from memplan_engine.recordings.observation import Level, Observation, observation_snapshot, older
from memplan_engine.recordings.observed_graph import observation_graph
from memplan_engine.system import write_atomically

_NS = 1000
PROCESS, THREAD = 1, 1
_TORCH_CPU, _TORCH_CUDA = 0, 1
"""torch's numbers of kinds of devices, as its profiler writes them."""


@dataclass(frozen=True, slots=True)
class ObservationImporter(RecordingImporter):
    """Reads memplan/observation, versions 1 and 2, as `write_observation` writes it. What says of every op
    what it did (version 2) opens as a graph."""

    name: str = "observation"
    description: str = "memplan JSON of an observed run"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By its format, which stands first."""
        return is_observation(head)

    def load(self, path: Path, options: ImportOptions) -> Loaded:
        """The graph of the run on one device where the file has its flow, else its buffers; raises
        InputError."""
        selection = options.selection
        chosen = options.offsets_as_plan or selection != Selection(selection.device)
        observation = None if chosen else load_observation(path)
        if observation is None or observation.flow is None:
            return RecordingImporter.load(self, path, options)
        return observation_graph(observation, selection.device)

    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """A recording for each device, at the level that knows most; raises InputError."""
        try:
            return observation_snapshot(load_observation(path))
        except InputError as error:
            raise InputError(path.name, error.place, error.found, error.expected) from None


def is_observation(head: bytes) -> bool:
    """Whether a file that begins like this is one."""
    return says_format(head, "memplan/observation")


def has_flow(head: bytes) -> bool:
    """Whether a file that begins like this is one that says of every op what it did: it opens as a graph."""
    return is_observation(head) and b'"version":2' in head[:200].replace(b" ", b"")


def load_observation(path: Path | str) -> Observation:
    """Read an observation back; equal to what was written.

    Raises
    ------
    InputError: another file, or one that is not sound, with the path of the first field that is wrong.
    """
    # Here, not above: who opens another kind of file need not wait for pydantic.
    from memplan_engine.formats.memplan_json.flow_format import FlowFile, observation_with_flow
    from memplan_engine.formats.memplan_json.json_base import check_head, parse
    from memplan_engine.formats.memplan_json.observation_format import ObservationFile, observation_from
    from memplan_engine.formats.read_limits import read_text

    path = Path(path)
    text = read_text(path)
    if check_head(text, path.name, "memplan/observation", newest=2) == 1:
        return observation_from(parse(ObservationFile, text, path.name), path.name)
    return observation_with_flow(parse(FlowFile, text, path.name), path.name)


def write_observation(observation: Observation, path: Path | str) -> None:
    """Write `observation` as memplan JSON, atomically; `load_observation` reads it back.

    Raises
    ------
    InputError: a place that cannot be written, names that are no valid text.
    """
    write_atomically(path, observation_bytes(observation))


def observation_bytes(observation: Observation) -> bytes:
    """`observation` as memplan JSON in UTF-8, with one line break at the end."""
    from memplan_engine.formats.memplan_json.flow_format import file_with_flow
    from memplan_engine.formats.memplan_json.json_base import render
    from memplan_engine.formats.memplan_json.observation_format import file_of_observation

    make = file_of_observation if observation.flow is None else file_with_flow
    return render(lambda: make(observation), observation.name)


def write_observation_trace(observation: Observation, path: Path | str) -> None:
    """Write `observation` as a Chrome trace (JSON), atomically: ops as ranges, each allocation and free as an
    instant event, and live bytes as counters, one for each level and device.

    The instants of the level that knows most are called "[memory]" and have the fields that PyTorch's
    profiler gives them, so that whatever reads its traces, memplan too, reads these.

    Raises
    ------
    InputError: a place that cannot be written, names that are no valid text.
    """
    try:
        text = json.dumps(trace_of(observation), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        found = "a name that is not valid text"
        raise InputError(observation.name, "", found, "names in Unicode") from None
    write_atomically(path, text + b"\n")


def trace_of(observation: Observation) -> dict[str, Any]:
    """The trace as plain values; times in microseconds."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": f"memplan: {observation.name}"}}
    ]
    ops = observation.ops
    for name, kind, begin, end in zip(
        ops.names, ops.kinds, ops.begin.tolist(), ops.end.tolist(), strict=True
    ):
        row = {"ph": "X", "cat": "cpu_op", "name": name, "pid": PROCESS, "tid": THREAD}
        events.append({**row, "ts": begin / _NS, "dur": (end - begin) / _NS, "args": {"operator": kind}})
    for level in observation.levels:
        name = "[memory]" if level is observation.levels[0] else f"[{level}]"
        for device in observation.devices:
            events += _changes(observation, level, device, name)
    events.sort(key=lambda event: event.get("ts", -1.0))
    return {"schemaVersion": 1, "displayTimeUnit": "ns", "traceEvents": events}


def _changes(observation: Observation, level: Level, device: int, name: str) -> list[dict[str, Any]]:
    """An instant and a value of the counter for each change of one level on one device."""
    rows: Rows = observation.at(level, device)
    live = np.cumsum(np.where(older(rows), 0, rows["size"])).tolist()
    where = "CPU" if device < 0 else f"device {device}"
    counter = {"ph": "C", "name": f"live bytes, {level}, {where}", "pid": PROCESS}
    instant = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": PROCESS, "tid": THREAD}
    kind = {"Device Type": _TORCH_CPU if device < 0 else _TORCH_CUDA, "Device Id": device}
    events: list[dict[str, Any]] = []
    for time, size, address, op, kernel, _, inside in rows.tolist():
        said: dict[str, Any] = {"Addr": address, "Bytes": size, "Total Allocated": live[len(events) // 2]}
        said |= kind
        if op >= 0:
            said["op" if inside else "after op"] = observation.ops.names[op]
        if kernel >= 0:
            said["operator"] = observation.kernels[kernel]
        events.append({**instant, "ts": time / _NS, "args": said})
        events.append({**counter, "ts": time / _NS, "args": {"bytes": live[len(events) // 2]}})
    return events
