"""What an observer saw, as a file to open: the observed allocations are buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memplan_engine.formats.importer import says_format
from memplan_engine.formats.recording_file import RecordingImporter

if TYPE_CHECKING:
    from memplan_engine.recordings.allocator_recording import Snapshot
    from memplan_engine.recordings.observation import Observation


@dataclass(frozen=True, slots=True)
class ObservationImporter(RecordingImporter):
    """Reads memplan/observation, version 1, as `write_observation` writes it."""

    name: str = "observation"
    description: str = "memplan JSON of an observed run"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By its format, which stands first."""
        return is_observation(head)

    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """A recording for each device, at the level that knows most; raises InputError."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.errors import InputError
        from memplan_engine.recordings.observation import observation_snapshot

        try:
            return observation_snapshot(load_observation(path))
        except InputError as error:
            raise InputError(path.name, error.place, error.found, error.expected) from None


def is_observation(head: bytes) -> bool:
    """Whether a file that begins like this is one."""
    return says_format(head, "memplan/observation")


def load_observation(path: Path | str) -> Observation:
    """Read an observation back; equal to what was written.

    Raises
    ------
    InputError: another file, or one that is not sound, with the path of the first field that is wrong.
    """
    from memplan_engine.formats.memplan_json.json_base import load_as
    from memplan_engine.formats.memplan_json.observation_format import ObservationFile, observation_from

    path = Path(path)
    return observation_from(load_as(ObservationFile, path, "memplan/observation"), path.name)
