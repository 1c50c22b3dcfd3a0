"""What every importer offers, those of recordings too, and what a person may ask of it."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from memplan_engine.graph import Graph
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem
from memplan_engine.recordings.allocator_recording import EVERYTHING, Selection, Snapshot

Loaded = Graph | Problem | Plan
HEAD_BYTES = 4096
"""How much of a file's beginning an importer is shown to recognise it."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`dims` binds symbolic dimensions (ONNX) to numbers. Those left are symbols of the graph; `hints` are
    the values at which it is taken, 2 where there is none. `offsets_as_plan` opens a list of buffers that
    carries all its offsets as somebody's finished plan rather than as buffers with fixed offsets, and a
    recording as the placement that was recorded. `selection` chooses the device, stream and pool of a
    recording. `bank` chooses one bank of a plan over several, whose plan is what is read. `progress` is told
    how many bytes of a large file have been read, and of how many."""

    dims: Mapping[str, int] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    offsets_as_plan: bool = False
    selection: Selection = EVERYTHING
    bank: str | None = None
    progress: Callable[[int, int], None] | None = field(default=None, compare=False)


class Importer(Protocol):
    """One kind of file. Implementations are frozen dataclasses; `files.READERS` names them."""

    @property
    def name(self) -> str:
        """A short name, such as "onnx"."""

    @property
    def description(self) -> str:
        """One line for people."""

    @property
    def binds_dimensions(self) -> bool:
        """Whether such files have named dimensions that `ImportOptions.dims` and `hints` bind."""

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the file is of this kind, judged by its first HEAD_BYTES bytes and, at need, by more of
        its content. Must not raise for whatever the file holds."""

    def load(self, path: Path, options: ImportOptions) -> Loaded:
        """Read the file; raises InputError when it is not sound."""


class RecordingImporter(ABC):
    """An `Importer` of recordings: `read` is its own, the buffers follow from it. `files.load_recording` asks
    those that `files.READERS` names."""

    @abstractmethod
    def read(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        """All devices of the file; raises InputError when it is not sound or has no addresses."""

    def load(self, path: Path, options: ImportOptions) -> Loaded:
        """The buffers of the device with the most bytes, or of what `options` choose; raises InputError."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.recordings.allocator_recording import choose_recording
        from memplan_engine.recordings.recorded_problem import recorded_plan, recording_problem

        recording = choose_recording(self.read(path, options.progress), options.selection)
        problem = recording_problem(recording)
        return recorded_plan(recording, problem) if options.offsets_as_plan else problem


def says_format(head: bytes, form: str) -> bool:
    """Whether a file that begins with `head` is JSON whose first words name the format `form`."""
    begin = head.removeprefix(codecs.BOM_UTF8).lstrip()[:200]
    return begin[:1] == b"{" and f'"{form}"'.encode() in begin
