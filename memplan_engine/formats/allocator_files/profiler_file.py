"""What PyTorch's profiler writes of memory, as a file to open: traces and timelines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memplan_engine.formats.importer import HEAD_BYTES, ImportOptions, open_recording
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem


@dataclass(frozen=True, slots=True)
class ProfilerImporter:
    """Chrome traces with memory events, and exported memory timelines; plain or as .gz."""

    name: str = "profiler"
    description: str = "PyTorch profiler trace with memory events, or memory timeline (.json, .json.gz)"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """By the first keys of a trace, or by the two brackets that a timeline begins with."""
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.formats.json_stream import head_of

        begin = head_of(path, head, HEAD_BYTES).lstrip()
        return is_timeline(begin) or is_trace(begin)

    def load(self, path: Path, options: ImportOptions) -> Problem | Plan:
        """The buffers; of a trace those of the device that `options` choose; raises InputError."""
        from memplan_engine.formats.allocator_files.profiler_timeline import load_timeline
        from memplan_engine.formats.allocator_files.profiler_trace import load_trace
        from memplan_engine.formats.json_stream import head_of
        from memplan_engine.formats.read_limits import read_head

        if not is_trace(head_of(path, read_head(path, HEAD_BYTES), HEAD_BYTES).lstrip()):
            return load_timeline(path)
        return open_recording(load_trace(path, options.progress), options)


def is_timeline(begin: bytes) -> bool:
    """Whether a file that begins like this is an exported memory timeline."""
    return begin.replace(b" ", b"")[:2] == b"[["


def is_trace(begin: bytes) -> bool:
    """Whether a file that begins like this is a trace."""
    return begin[:1] == b"{" and (b'"traceEvents"' in begin or b'"schemaVersion"' in begin)
