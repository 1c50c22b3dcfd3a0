"""What PyTorch writes of memory, as files to open: snapshots, traces and timelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import HEAD_BYTES, ImportOptions, Loaded, RecordingImporter
from memplan_engine.formats.read_limits import read_head
from memplan_engine.recordings.allocator_recording import Snapshot


@dataclass(frozen=True, slots=True)
class ProfilerImporter(RecordingImporter):
    """Chrome traces with memory events, and exported memory timelines; plain or as .gz."""

    name: str = "profiler"
    description: str = "PyTorch profiler trace with memory events, or memory timeline (.json, .json.gz)"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By the first keys of a trace, or by the two brackets that a timeline begins with."""
        begin = _begin(path, head)
        return begin.replace(b" ", b"")[:2] == b"[[" or is_trace(begin)

    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """All devices of a trace; raises InputError, also for a timeline."""
        from memplan_engine.formats.allocator_files.profiler_trace import load_trace

        if not is_trace(_begin(path, read_head(path, HEAD_BYTES))):
            found = "a memory timeline, which has no addresses"
            expected = "a snapshot or a trace; `memplan plan` and `peak` take timelines"
            raise InputError(path.name, "", found, expected)
        return load_trace(path, progress)

    def load(self, path: Path, options: ImportOptions) -> Loaded:
        """The buffers; of a trace those of the device that `options` choose; raises InputError."""
        from memplan_engine.formats.allocator_files.profiler_timeline import load_timeline

        if not is_trace(_begin(path, read_head(path, HEAD_BYTES))):
            return load_timeline(path)
        return RecordingImporter.load(self, path, options)


@dataclass(frozen=True, slots=True)
class SnapshotImporter(RecordingImporter):
    """Reads memory snapshots with an unpickler that can make nothing but plain data."""

    name: str = "pickle"
    description: str = "CUDA memory snapshot (a pickle of plain data)"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether it is a pickle at all: what else may be in it is refused by name."""
        return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")

    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """All devices of the snapshot; raises InputError."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot

        return load_snapshot(path, progress)


def is_trace(begin: bytes) -> bool:
    """Whether a file that begins like this is a trace."""
    return begin[:1] == b"{" and (b'"traceEvents"' in begin or b'"schemaVersion"' in begin)


def _begin(path: Path, head: bytes) -> bytes:
    # Here, not above: who opens another kind of file need not wait for it.
    from memplan_engine.formats.json_stream import head_of

    return head_of(path, head, HEAD_BYTES).lstrip()
