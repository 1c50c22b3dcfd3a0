"""Storages that come and go while a model runs, with the op that runs then and the lines of Python."""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path
from types import FrameType

import torch

from memplan_engine.callers import BACKWARD, Frame
from memplan_engine.recordings.observation import CPU, NO_KERNEL, NO_OP
from memplan_engine.torch_capture.torch_storages import StorageWatch

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
