"""Allocator level: every request to torch's allocator, as the profiler's own memory reports have it.

Only torch's C++ recorder runs, for memory and, where asked, operators: no shapes, stacks or Python tracing.
On accelerators it is torch's own memory history, read by memplan's importer of snapshots.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler, _profiler_enabled
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    RecordScope,
    _EventType,
    _ExperimentalConfig,
)

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.recordings.allocator_recording import Action, Rows, Snapshot
from memplan_engine.recordings.observation import CHANGE, CPU, NO_KERNEL, NO_OP

MARK = "memplan op "
"""How the observer calls its own ranges; their number follows."""


MOST_EVENTS = 1_000_000
_NS = 1000


class AllocatorLog:
    """Records from `start` to `stop`; one at a time in a process."""

    def __init__(self, name: str, operators: bool = False) -> None:
        self.name = name
        # Without operators only memory and the observer's own ranges are noted.
        self.scope = RecordScope.FUNCTION if operators else RecordScope.USER_SCOPE

    def start(self) -> None:
        """Begin to record; raises InputError when a profiler is running already."""
        config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig())
        activities = {ProfilerActivity.CPU}
        # Kineto says on stderr that it begins and ends, unless it is told not to before its first use.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        if _profiler_enabled():
            found = "a profiler that is running already"
            raise InputError(self.name, "allocator level", found, "no other profiler meanwhile")
        _prepare_profiler(config, activities)
        _enable_profiler(config, activities, {self.scope, RecordScope.USER_SCOPE})  # type: ignore[call-arg]

    def stop(self) -> Ranges:
        """End the recording; what it saw."""
        return Ranges(_disable_profiler().experimental_event_tree())


class Ranges:
    """The observer's ranges by number, and the memory events in order of time (ns since the epoch)."""

    def __init__(self, tree: list[Any]) -> None:
        self.begin: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.kernels: dict[str, int] = {}
        rows = array("q")
        top: list[tuple[int, int, str]] = []
        devices: dict[Any, int] = {}
        pending: list[tuple[Any, str | None]] = [(event, None) for event in tree]
        while pending:
            event, around = pending.pop()
            tag, fields = event.typed
            begin = event.start_time_ns
            if tag == _EventType.Allocation:
                device = devices.get(fields.device)
                if device is None:
                    devices[fields.device] = device = _number(fields.device)
                kernel = NO_KERNEL if around is None else self._kernel(around)
                rows.extend((begin, fields.alloc_size, fields.ptr or 0, kernel, device))
                continue
            name = event.name
            if name.startswith(MARK):
                number = int(name[len(MARK) :])
                self.begin[number], self.end[number] = begin, begin + event.duration_time_ns
            elif around is None and tag == _EventType.TorchOp:
                top.append((begin, begin + event.duration_time_ns, name))
            pending += [(child, name) for child in event.children]
        self.top = sorted(top)
        found = np.array(rows, dtype=np.int64).reshape(-1, 5)
        self.rows = found[np.argsort(found[:, 0], kind="stable")].T

    def _kernel(self, name: str) -> int:
        if name.startswith(MARK):
            return NO_KERNEL
        return self.kernels.setdefault(name, len(self.kernels))

    def changes(self, begin: Any, end: Any, epoch: int) -> Rows:
        """The memory events as rows of CHANGE, for ops that run from `begin` to `end` (ns, epoch's clock)."""
        made, columns = np.zeros(self.rows.shape[1], dtype=CHANGE), self.rows
        made["time"], made["size"], made["address"], made["kernel"], made["device"] = columns
        made["op"], made["inside"] = attribute(columns[0], begin, end)
        made["time"] = np.maximum(made["time"] - epoch, 0)
        told: Rows = made[made["size"] != 0]
        return told


def attribute(time: Any, begin: Any, end: Any) -> tuple[Any, Any]:
    """For each moment the op that ran then or was the last to begin, and whether it was still running. Times
    in one unit; ops one after the other."""
    if not len(begin):
        return np.full(len(time), NO_OP), np.zeros(len(time), dtype=bool)
    op = np.searchsorted(begin, time, side="right") - 1
    return op, (op >= 0) & (time <= end[np.maximum(op, 0)])


def _number(device: torch.device) -> int:
    return CPU if device.type == "cpu" else device.index or 0


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

    def stop(self) -> Snapshot | None:
        """End the recording; None where there was none."""
        if not self.active:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "history.pickle"
            self.memory._dump_snapshot(str(path))
            self.memory._record_memory_history(None)
            return load_snapshot(path)


def with_accelerators(rows: Rows, snapshot: Snapshot, begin: Any, end: Any, epoch: int) -> Rows:
    """`rows` (of CHANGE) with those of accelerators from the snapshot instead, in order of the ops, and
    within an op of time; each belongs to the op that ran when it came: the allocator is asked before a
    kernel is queued. Times of a snapshot are whole microseconds."""
    parts = [rows[rows["device"] < 0]]
    for recording in snapshot.recordings:
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
