"""Whatever holds a recording of an allocator, as a recording: memory snapshots and profiler traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.importers.base import HEAD_BYTES
from memplan_engine.importers.cuda_snapshot import load_snapshot
from memplan_engine.importers.json_stream import head_of
from memplan_engine.importers.limits import read_head
from memplan_engine.importers.profiler_file import is_trace
from memplan_engine.importers.profiler_trace import load_trace
from memplan_engine.importers.snapshot_file import SnapshotImporter
from memplan_engine.recordings.values import Snapshot


def load_recording(path: Path | str, progress: Callable[[int, int], None] | None = None) -> Snapshot:
    """All devices of a CUDA memory snapshot or of a profiler trace with memory events.

    Raises
    ------
    InputError: a file of another kind, or one that is not sound.
    """
    path = Path(path)
    head = read_head(path, HEAD_BYTES)
    if SnapshotImporter().recognises(head, path):
        return load_snapshot(path, progress)
    if is_trace(head_of(path, head, HEAD_BYTES).lstrip()):
        return load_trace(path, progress)
    raise InputError(path.name, "", "no recording", "a CUDA memory snapshot, or a profiler trace")
