"""Whatever holds a recording of an allocator, as a recording: snapshots, profiler traces, observations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.formats.allocator_files.profiler_file import is_timeline, is_trace
from memplan_engine.formats.allocator_files.profiler_trace import load_trace
from memplan_engine.formats.allocator_files.snapshot_reader import SnapshotImporter
from memplan_engine.formats.importer import HEAD_BYTES
from memplan_engine.formats.json_stream import head_of
from memplan_engine.formats.memplan_json.observation_reader import is_observation, load_observed_snapshot
from memplan_engine.formats.read_limits import read_head
from memplan_engine.recordings.allocator_recording import Snapshot


def load_recording(path: Path | str, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """All devices of a CUDA memory snapshot, of a profiler trace with memory events, or of an observation.

    Raises
    ------
    InputError: a file of another kind, or one that is not sound.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    if SnapshotImporter().recognises(head, path):
        return load_snapshot(path, progress)
    if is_observation(head):
        return load_observed_snapshot(path)
    begin = head_of(path, head, HEAD_BYTES).lstrip()
    if is_trace(begin):
        return load_trace(path, progress)
    if is_timeline(begin):
        found = "a memory timeline, which has no addresses"
        raise InputError(
            path.name, "", found, "a snapshot or a trace; `memplan plan` and `peak` take timelines"
        )
    raise InputError(
        path.name, "", "no recording", "a CUDA memory snapshot, a profiler trace, or an observation"
    )
