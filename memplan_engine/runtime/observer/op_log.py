"""The ops of a run as they are noted, the storages that come and go meanwhile with the lines of Python, and
the observation that is made of it all."""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from memplan_engine.callers import BACKWARD, UNKNOWN_STACK, Frame, Stacks
from memplan_engine.recordings.allocator_recording import Rows, Snapshot
from memplan_engine.recordings.observation import (
    CHANGE,
    CPU,
    NO_KERNEL,
    NO_OP,
    Level,
    Observation,
    ObservedOps,
)
from memplan_engine.runtime.observer.allocations import Ranges, with_accelerators
from memplan_engine.torch_capture.torch_storages import StorageWatch, operator_name


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
        known: dict[Any, str] = {}
        for number, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True)):
            if not name:
                called = known.get(kind) or known.setdefault(kind, operator_name(kind))
                self._names[number] = self._unique(called.rpartition("::")[2])
                self._kinds[number] = called.replace("::", ".")

    def _take_operators(self, ranges: Ranges) -> None:
        for begin, end, kind in ranges.top:
            self._names.append(self._unique(kind.rpartition("::")[2]))
            self._kinds.append(kind.replace("::", "."))
            self._begin.append(begin)
            self._end.append(end)
            self._stack.append(UNKNOWN_STACK)


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

    def made(self, storage: torch.UntypedStorage) -> tuple[int, int, int] | None:
        """Bytes, address and device, after a row."""
        device, nbytes = storage.device, storage.nbytes()
        if not nbytes or device.type == "meta":
            return None
        number = CPU if device.type == "cpu" else device.index or 0
        entry = (nbytes, storage.data_ptr(), number)
        self._add(nbytes, entry)
        return entry

    def gone(self, entry: tuple[int, int, int]) -> None:
        """A row, too."""
        self._add(-entry[0], entry)

    def _add(self, size: int, entry: tuple[int, int, int]) -> None:
        at = self.position
        self.rows.extend((time.time_ns(), size, entry[1], at.op, NO_KERNEL, entry[2], at.inside))


def python_stack() -> tuple[Frame, ...]:
    """The lines of Python that are running, the innermost first, from the operator to whoever called
    the observer; of a backward pass that we began, only that it is one."""
    frame: FrameType | None = sys._getframe(1)
    found: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_OURS) and (found or not code.co_filename.startswith(_SKIPPED)):
            break
        # Under a mode torch calls us through a wrapper of its compiler.
        if found or not code.co_filename.startswith(_SKIPPED):
            found.append(Frame(code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    alone = all(each.file.startswith(str(_TORCH)) for each in found)
    return (BACKWARD,) if alone and any(each.file in _AUTOGRAD for each in found) else tuple(found)
