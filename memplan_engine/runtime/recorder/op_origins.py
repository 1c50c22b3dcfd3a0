"""Where an op that runs comes from: its stage of the run, its module, the line of the user's code."""

from __future__ import annotations

import linecache
import sys
from enum import Enum
from functools import cache
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from memplan_engine.callers import BACKWARD, Frame, Stacks
from memplan_engine.graph import Source
from memplan_engine.recordings.observed_flow import NO_SOURCE, Stage
from memplan_engine.torch_capture.torch_source import MAX_CODE, is_ours, is_users, portable_path
from memplan_engine.torch_capture.training.torch_origins import (
    AUTOGRAD,
    ENGINE,
    LIBRARY,
    RunningModules,
    current_gradient,
)

CHECKPOINT = "torch/utils/checkpoint.py"
"""Where what a checkpoint runs again is called from."""
PLUMBING = ("torch/_compile.py", "torch/_dynamo/", "torch/_subclasses/", "torch/utils/_python_dispatch.py")
"""Through which torch calls a mode."""
CALL = "torch/nn/modules/module.py"
"""Where every module is called, which is no layer."""


class Code(Enum):
    """Whose a function is."""

    OURS = 0
    ENGINE = 1
    GRADIENT = 2
    CHECKPOINT = 3
    FORWARD = 4
    USERS = 5
    LIBRARY = 6
    OTHER = 7


class Origin(NamedTuple):
    """Of one op its stage, the path of its module, and the places of its calls and of its line."""

    stage: Stage
    module: str
    stack: int
    source: int


class OpOrigins:
    """Tells of each op where it comes from, while it runs. Frames and stacks are kept once.

    An op of a backward pass comes from the module and the line of the op that it is a gradient of: both know
    its number in autograd's sequence. What makes `.grad` belongs to the module of the parameter (`owners`, by
    the parameter's id). `boundary` is the function of ours that called the user's code.
    """

    def __init__(self, modules: RunningModules, owners: dict[int, str], boundary: CodeType) -> None:
        self.modules, self.owners, self.boundary = modules, owners, boundary
        self.updating = False
        self._codes: dict[int, tuple[CodeType, Code]] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._calls: list[tuple[CodeType, int]] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._sources: dict[int, int] = {}
        self._numbered: dict[int, tuple[str, tuple[int, ...], int]] = {}

    def here(self, has_gradient: bool = False) -> Origin:
        """Of the op that has just reached the dispatcher; one that `has_gradient` has it where autograd is
        off, too, in the forward pass of a Function."""
        calls, line, stage = self._walk(sys._getframe(2))
        if self.updating:
            stage = Stage.OPTIMIZER
        module = self.modules.running[-1][0] if self.modules.running else ""
        if stage is Stage.BACKWARD and not (module and self.modules.running[-1][1]):
            module, forward_calls, forward_line = self._differentiated()
            calls = (*calls, *forward_calls) if line == NO_SOURCE else calls
            line = forward_line if line == NO_SOURCE else line
        elif stage is not Stage.OPTIMIZER and (has_gradient or torch.is_grad_enabled()):
            number: int = torch._C._autograd._get_sequence_nr() - 1
            self._numbered.setdefault(number, (module, calls, line))
        stack = self._stacks.setdefault((stage is Stage.BACKWARD, *calls), len(self._stacks))
        source = NO_SOURCE if line == NO_SOURCE else self._sources.setdefault(line, len(self._sources))
        return Origin(stage, module, stack, source)

    def _differentiated(self) -> tuple[str, tuple[int, ...], int]:
        """Module, calls and line of the op whose gradient autograd is working out."""
        current = current_gradient()
        if current is None:
            return "", (), NO_SOURCE
        parameter = getattr(current, "variable", None)
        if parameter is not None:
            return self.owners.get(id(parameter), ""), (), NO_SOURCE
        return self._numbered.get(current._sequence_nr(), ("", (), NO_SOURCE))

    def _walk(self, frame: FrameType | None) -> tuple[tuple[int, ...], int, Stage]:
        """The calls from `frame` to the boundary, or in a backward pass to autograd's engine: who called
        `backward` is not where a gradient is from. Which of them is the line: the innermost `forward` of the
        user's, as torch.export takes it, else the innermost of the user's, else of torch's layers."""
        calls: list[int] = []
        best: dict[Code, int] = {}
        again = False
        stage = Stage.FORWARD
        while frame is not None and frame.f_code is not self.boundary:
            code = self._kind(frame.f_code)
            if code is not Code.OURS:
                key = (id(frame.f_code), frame.f_lineno)
                number = self._frames.get(key)
                if number is None:
                    number = self._frames[key] = len(self._calls)
                    self._calls.append((frame.f_code, frame.f_lineno))
                calls.append(number)
                if code is Code.ENGINE:
                    stage = Stage.RECOMPUTE if again else Stage.BACKWARD
                    break
                if code is Code.GRADIENT and not best.keys() & {Code.FORWARD, Code.USERS}:
                    stage = Stage.BACKWARD
                again = again or code is Code.CHECKPOINT
                best.setdefault(code, number)
                if code is Code.FORWARD:
                    best.setdefault(Code.USERS, number)
            frame = frame.f_back
        if frame is None and current_gradient() is not None:
            # A device's gradients are worked out in a thread of autograd's, in which nobody has called it.
            stage = Stage.RECOMPUTE if again else Stage.BACKWARD
        order = (Code.FORWARD, Code.USERS, Code.LIBRARY)
        return tuple(calls), next((best[kind] for kind in order if kind in best), NO_SOURCE), stage

    def _kind(self, code: CodeType) -> Code:
        known = self._codes.get(id(code))
        if known is None:
            # The code is kept: an id means nothing once its object is gone.
            known = self._codes[id(code)] = (code, _kind_of(code.co_filename, code.co_name))
        return known[1]

    def stacks(self) -> Stacks:
        """All calls that were kept; those of a backward pass begin with BACKWARD."""
        frames = (BACKWARD, *(Frame(code.co_name, code.co_filename, line) for code, line in self._calls))
        stacks = (
            (*((0,) if backward else ()), *(number + 1 for number in calls))
            for backward, *calls in self._stacks
        )
        return Stacks(frames, tuple(stacks))

    def sources(self) -> tuple[Source, ...]:
        """All lines that were kept."""
        return tuple(_source(*self._calls[number]) for number in self._sources)


def _source(code: CodeType, line: int) -> Source:
    text = linecache.getline(code.co_filename, line).strip()[:MAX_CODE]
    return Source(portable_path(code.co_filename), line, text)


@cache
def _kind_of(file: str, function: str) -> Code:
    path = portable_path(file)
    if is_ours(file) or path.startswith(PLUMBING):
        return Code.OURS
    if function == ENGINE:
        return Code.ENGINE
    if path == CALL:
        return Code.OTHER
    for kind, places in ((Code.GRADIENT, AUTOGRAD), (Code.CHECKPOINT, CHECKPOINT), (Code.LIBRARY, LIBRARY)):
        if path.startswith(places):
            return kind
    if is_users(file):
        return Code.FORWARD if function == "forward" else Code.USERS
    return Code.OTHER
