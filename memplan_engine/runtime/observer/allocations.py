"""What a run notes: every request to torch's allocator, as the profiler's own memory reports have it, the
ops, the storages that come and go meanwhile with the lines of Python, and the observation that is made of it
all.

At the allocator level only torch's C++ recorder runs, for memory and, where asked, operators: no shapes,
stacks or Python tracing. On accelerators it is torch's own memory history, read by memplan's
importer of snapshots.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from pathlib import Path
from types import FrameType
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

from memplan_engine.callers import BACKWARD, UNKNOWN_STACK, Frame, Stacks
from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.cuda_snapshot import load_snapshot
from memplan_engine.recordings.allocator_recording import Action, Rows, Snapshot
from memplan_engine.recordings.observation import (
    CHANGE,
    CPU,
    NO_KERNEL,
    NO_OP,
    Level,
    Observation,
    ObservedOps,
)
from memplan_engine.runtime.scratch import scratch_folder
from memplan_engine.torch_capture.torch_storages import StorageWatch, operator_name

MARK = "memplan op "
"""How the observer calls its own ranges; their number follows."""


MOST_EVENTS = 1_000_000
_NS = 1000
_TORCH = Path(torch.__file__).parent
_ENGINE = Path(__file__).parents[2]
_OURS = str(_ENGINE)
_AUTOGRAD = (str(_TORCH / "autograd" / "__init__.py"), str(_TORCH / "autograd" / "graph.py"))
"""Through which every backward pass goes."""
_SKIPPED = tuple(
    map(
        str,
        (
            _ENGINE / "runtime",
            _ENGINE / "torch_capture" / "torch_storages.py",
            _TORCH / "_compile.py",
            _TORCH / "_dynamo",
        ),
    )
)


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
        events = np.array(rows, dtype=np.int64).reshape(-1, 5)
        self.rows = events[np.argsort(events[:, 0], kind="stable")].T

    def _kernel(self, name: str) -> int:
        if name.startswith(MARK):
            return NO_KERNEL
        return self.kernels.setdefault(name, len(self.kernels))

    def changes(self, begin: Any, end: Any, epoch: int) -> Rows:
        """The memory events as rows of CHANGE, for ops that run from `begin` to `end` (ns, epoch's clock)."""
        changes = np.zeros(self.rows.shape[1], dtype=CHANGE)
        columns = self.rows
        changes["time"], changes["size"], changes["address"], changes["kernel"], changes["device"] = columns
        changes["op"], changes["inside"] = attribute(columns[0], begin, end)
        changes["time"] = np.maximum(changes["time"] - epoch, 0)
        allocated: Rows = changes[changes["size"] != 0]
        return allocated


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
        with scratch_folder() as folder:
            path = folder / "history.pickle"
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
        changes = np.zeros(len(events), dtype=CHANGE)
        changes["size"] = np.where(events["action"] == Action.ALLOC, events["size"], -events["size"])
        changes["address"], changes["device"], changes["kernel"] = (
            events["address"],
            recording.device,
            NO_KERNEL,
        )
        changes["op"], changes["inside"] = attribute(events["time"], begin // _NS, -(-end // _NS))
        changes["time"] = events["time"] * _NS - epoch
        parts.append(changes[changes["size"] != 0])
    joined = np.concatenate(parts)
    return joined[np.lexsort((joined["time"], ~joined["inside"], joined["op"]))]


class OpLog:
    """Names, kinds, times (ns since the epoch of the clock) and stacks of ops, one after the other; `epoch`
    is when the run began."""

    def __init__(self) -> None:
        self.epoch = 0
        self._names: list[str] = []
        self._kinds: list[Any] = []
        self._begin = array("q")
        self._end = array("q")
        self._stack = array("q")
        self._counts: dict[str, int] = {}
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def begin(self, name: str, kind: Any, stack: int) -> int:
        """An op begins; its number. Without a name it is called by its `kind`, an operator, later on."""
        number = len(self._names)
        self._names.append(name)
        self._kinds.append(kind)
        self._stack.append(stack)
        self._begin.append(time.time_ns())
        return number

    def ended(self) -> None:
        """It has run."""
        self._end.append(time.time_ns())

    def _unique(self, name: str) -> str:
        """ "add", "add_1", …"""
        self._counts[name] = count = self._counts.get(name, -1) + 1
        return f"{name}_{count}" if count else name

    def stack_number(self, frames: tuple[Frame, ...]) -> int:
        """The number of a stack, each of which is kept once."""
        key = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in frames)
        return self._stacks.setdefault(key, len(self._stacks))

    def finished(
        self,
        name: str,
        ended: int,
        *,
        storages: array[int] | None,
        ranges: Ranges | None,
        devices: Snapshot | None,
        outermost: bool,
    ) -> Observation:
        """The observation of a run that ended at `ended`; with `outermost` the ops are the outermost
        operators that the profiler saw."""
        changes: dict[Level, Rows] = {}
        self._name_operators()
        if ranges is not None and outermost:
            self._take_operators(ranges)
        if ranges is not None:
            # The profiler's own clock, in which its memory events are.
            self._begin = array("q", map(ranges.begin.get, range(len(self._begin)), self._begin))
            self._end = array("q", map(ranges.end.get, range(len(self._end)), self._end))
        begin, end = (np.array(column, dtype=np.int64) for column in (self._begin, self._end))
        if storages is not None:
            columns = np.array(storages, dtype=np.int64).reshape(-1, len(CHANGE.names or ())).T
            changes[Level.DISPATCH] = rows = np.zeros(columns.shape[1], dtype=CHANGE)
            for column, values in zip(CHANGE.names or (), columns, strict=True):
                rows[column] = values
            rows["time"] = np.maximum(rows["time"] - self.epoch, 0)
        if ranges is not None:
            rows = ranges.changes(begin, end, self.epoch)
            if devices is not None:
                rows = with_accelerators(rows, devices, begin, end, self.epoch)
            changes[Level.ALLOCATOR] = rows
        ops = ObservedOps(
            tuple(self._names),
            tuple(self._kinds),
            np.maximum(begin - self.epoch, 0),
            np.maximum(end - self.epoch, 0),
            np.array(self._stack, dtype=np.int64),
        )
        kernels = () if ranges is None else tuple(ranges.kernels)
        stacks = Stacks(tuple(self._frames), tuple(self._stacks))
        return Observation(name, ops, changes, kernels, stacks, ended - self.epoch)

    def _name_operators(self) -> None:
        """Call those without a name by their operator."""
        operators: dict[Any, str] = {}
        for number, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True)):
            if not name:
                operator = operators.get(kind) or operators.setdefault(kind, operator_name(kind))
                self._names[number] = self._unique(operator.rpartition("::")[2])
                self._kinds[number] = operator.replace("::", ".")

    def _take_operators(self, ranges: Ranges) -> None:
        for begin, end, kind in ranges.top:
            self._names.append(self._unique(kind.rpartition("::")[2]))
            self._kinds.append(kind.replace("::", "."))
            self._begin.append(begin)
            self._end.append(end)
            self._stack.append(UNKNOWN_STACK)


class Position:
    """Which op runs (`inside`), or was the last to run."""

    __slots__ = ("inside", "op")

    def __init__(self) -> None:
        self.op, self.inside = NO_OP, False


class StorageLog(StorageWatch):
    """`rows` are time, size, address, op, kernel, device and inside, over and over, as things happened;
    time in ns since the epoch; storages of 0 bytes are left out."""

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position
        # Plain numbers: objects by the thousand would have Python collect garbage within the run.
        self.rows = array("q")

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> tuple[int, int, int] | None:
        """Bytes, address and device, after a row."""
        device, nbytes = storage.device, storage.nbytes()
        if not nbytes or device.type == "meta":
            return None
        entry = (nbytes, storage.data_ptr(), _number(device))
        self._add(nbytes, entry)
        return entry

    def freed(self, entry: tuple[int, int, int]) -> None:
        """A row, too."""
        self._add(-entry[0], entry)

    def _add(self, size: int, entry: tuple[int, int, int]) -> None:
        at = self.position
        self.rows.extend((time.time_ns(), size, entry[1], at.op, NO_KERNEL, entry[2], at.inside))


def python_stack() -> tuple[Frame, ...]:
    """The lines of Python that are running, the innermost first, from the operator to whoever called
    the observer; of a backward pass that we began, only that it is one."""
    frame: FrameType | None = sys._getframe(1)
    frames: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_OURS) and (frames or not code.co_filename.startswith(_SKIPPED)):
            break
        # Under a mode torch calls us through a wrapper of its compiler.
        if frames or not code.co_filename.startswith(_SKIPPED):
            frames.append(Frame(code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    alone = all(line.file.startswith(str(_TORCH)) for line in frames)
    return (BACKWARD,) if alone and any(line.file in _AUTOGRAD for line in frames) else tuple(frames)
