"""Files that hold a recording of an allocator: what their readers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.formats.importer import ImportOptions
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem

if TYPE_CHECKING:
    from memplan_engine.recordings.allocator_recording import Snapshot


class RecordingImporter(ABC):
    """An `Importer` of recordings: `read` is its own, the buffers follow from it. `files.load_recording` asks
    those that `files.READERS` names."""

    @abstractmethod
    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """All devices of the file; raises InputError when it is not sound or has no addresses."""

    def load(self, path: Path, options: ImportOptions) -> Problem | Plan:
        """The buffers of the device with the most bytes, or of what `options` choose; raises InputError."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.recordings.allocator_recording import choose_recording
        from memplan_engine.recordings.recorded_problem import recorded_plan, recording_problem

        recording = choose_recording(self.read(path, options.progress), options.selection)
        problem = recording_problem(recording)
        return recorded_plan(recording, problem) if options.offsets_as_plan else problem
