"""Allocator level on accelerators: torch's own memory history, read by memplan's importer of snapshots."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.recordings.allocator_recording import Action, Rows, Snapshot
from memplan_engine.recordings.observation import CHANGE, NO_KERNEL
from memplan_engine.runtime.observer.allocations import attribute

MOST_EVENTS = 1_000_000
_NS = 1000


class CudaHistory:
    """Records what the caching allocator does, on every device, where CUDA is in use; does nothing where it
    is not. A history that is being recorded already begins anew, and ends with the run."""

    def __init__(self, memory: Any = None) -> None:
        self.memory = memory or torch.cuda.memory
        self.active = memory is not None or (
            torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        )

    def start(self, stacks: bool = False) -> None:
        """Begin to record."""
        if self.active:
            context = "alloc" if stacks else None
            self.memory._record_memory_history(
                "all", context=context, stacks="python", max_entries=MOST_EVENTS, clear_history=True
            )

    def stop(self) -> CudaChanges | None:
        """End the recording; None where there was none."""
        if not self.active:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "history.pickle"
            self.memory._dump_snapshot(str(path))
            self.memory._record_memory_history(None)
            return CudaChanges(load_snapshot(path))


class CudaChanges:
    """A snapshot's events as changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def changes(self, rows: Rows, begin: Any, end: Any, epoch: int) -> Rows:
        """`rows` (of CHANGE) with those of accelerators from the snapshot instead, in order of the ops, and
        within an op of time; each belongs to the op that ran when it came: the allocator is asked before a
        kernel is queued. Times of a snapshot are whole microseconds."""
        parts = [rows[rows["device"] < 0]]
        for recording in self.snapshot.recordings:
            freed = Action.FREE_COMPLETED
            if not (recording.events["action"] == freed).any():
                freed = Action.FREE_REQUESTED
            events = recording.events[recording.rows(Action.ALLOC, freed)]
            # What a history of somebody else's holds from before.
            events = events[events["time"] >= epoch // _NS]
            made = np.zeros(len(events), dtype=CHANGE)
            made["size"] = np.where(events["action"] == Action.ALLOC, events["size"], -events["size"])
            made["address"], made["device"], made["kernel"] = events["address"], recording.device, NO_KERNEL
            made["op"], made["inside"] = attribute(events["time"], begin // _NS, -(-end // _NS))
            made["time"] = events["time"] * _NS - epoch
            parts.append(made[made["size"] != 0])
        joined = np.concatenate(parts)
        return joined[np.lexsort((joined["time"], ~joined["inside"], joined["op"]))]
