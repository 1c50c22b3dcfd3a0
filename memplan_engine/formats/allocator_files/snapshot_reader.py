"""Recordings of an allocator as a file to open: memory snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.formats.recording_file import RecordingImporter

if TYPE_CHECKING:
    from memplan_engine.recordings.allocator_recording import Snapshot


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
