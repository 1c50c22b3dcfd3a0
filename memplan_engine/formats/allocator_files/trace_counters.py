"""A profiler's trace with live and reserved bytes as counter tracks, for Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.profiler_trace import CPU
from memplan_engine.formats.json_stream import objects, opened
from memplan_engine.recordings.allocator_recording import Recording, Snapshot
from memplan_engine.recordings.cost import memory_over_time
from memplan_engine.system import write_atomically

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
"""In a text of JSON it stands nowhere else: there its quotes would have backslashes."""


def write_trace_counters(snapshot: Snapshot, source: Path | str, target: Path | str) -> None:
    """Write the trace `source`, as `load_trace` has read it into `snapshot`, to `target` (.json or .json.gz),
    atomically: all that it has, and of each device the live bytes after each memory event, and the reserved
    ones where the trace knows them, as counters at the time of that event, to the µs. What was there before
    the profiler began counts from the first event on if it is freed in the trace; else nobody knows of it.

    Raises
    ------
    InputError: a file that is no trace of a profiler; a place that cannot be written.
    """
    source, target = Path(source), Path(target)
    with opened(source) as (file, _, _):
        text = file.read()
    found = _EVENTS.search(text)
    events = objects(source, "traceEvents") if found else iter(())
    process = next((each.get("pid") for each in events if _is_memory(each)), None)
    if found is None or process is None:
        expected = "a trace written with profile(profile_memory=True)"
        raise InputError(source.name, "", "no trace with memory events", expected)
    counters = [event for each in snapshot.recordings for event in _counters(each, process)]
    added = ",".join(json.dumps(event, separators=(",", ":")) for event in counters).encode()
    written = text[: found.end()] + added + b"," + text[found.end() :]
    write_atomically(target, gzip.compress(written, mtime=0) if target.suffix == ".gz" else written)


def _is_memory(event: Any) -> bool:
    return isinstance(event, dict) and event.get("name") == "[memory]"


def _counters(recording: Recording, process: Any) -> list[dict[str, Any]]:
    over = memory_over_time(recording)
    where = "CPU" if recording.device == CPU else f"device {recording.device}"
    columns = {"live": over.live} | ({"reserved": over.reserved} if over.knows_reserved else {})
    # Step k is after the k-th event.
    times = recording.events["time"].tolist()
    return [
        {"ph": "C", "name": f"{name} bytes, {where}", "pid": process, "ts": time, "args": {"bytes": nbytes}}
        for name, column in columns.items()
        for time, nbytes in zip(times, column[1:].tolist(), strict=True)
    ]
