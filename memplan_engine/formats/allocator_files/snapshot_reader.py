"""Recordings of an allocator as a file to open: memory snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memplan_engine.formats.importer import ImportOptions, open_recording
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem


@dataclass(frozen=True, slots=True)
class SnapshotImporter:
    """Reads memory snapshots with an unpickler that can make nothing but plain data."""

    name: str = "pickle"
    description: str = "CUDA memory snapshot (a pickle of plain data)"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether it is a pickle at all: what else may be in it is refused by name."""
        return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")

    def load(self, path: Path, options: ImportOptions) -> Problem | Plan:
        """The device with the most bytes, or what `options` choose; raises InputError."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot

        return open_recording(load_snapshot(path, options.progress), options)
