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
COMPILER = ("torch/_dynamo/eval_frame.py", "compile_wrapper")
"""The function of torch's through which what `torch.compile` has made is called."""


class Code(Enum):
    """Whose a function is."""

    OURS = 0
    COMPILED = -1
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


class _Known(NamedTuple):
    """A function that has been seen, and of its instructions the numbers of their calls. The code is kept:
    an id means nothing once its object is gone."""

    code: CodeType
    kind: Code
    places: dict[int, int]


class OpOrigins:
    """Tells of each op where it comes from, while it runs. Frames and stacks are kept once.

    An op of a backward pass comes from the module and the line of the op that it is a gradient of: both know
    its number in autograd's sequence. What makes `.grad` belongs to the module of the parameter (`owners`, by
    the parameter's id). `boundary` is the function of ours that called the user's code.
    """

    def __init__(self, modules: RunningModules, owners: dict[int, str], boundary: CodeType) -> None:
        self.modules, self.owners, self.boundary = modules, owners, boundary
        self.updating = False
        self.compiled = False
        """Whether an op came from what `torch.compile` had made."""
        self._codes: dict[int, _Known] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._calls: list[tuple[CodeType, int]] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._sources: dict[int, int] = {}
        self._numbered: dict[int, tuple[str, tuple[int, ...], int]] = {}

    def here(self) -> Origin:
        """Of the op that has just reached the dispatcher."""
        calls, line, stage = self._walk(sys._getframe(2))
        if self.updating:
            stage = Stage.OPTIMIZER
        module = self.modules.running[-1][0] if self.modules.running else ""
        if stage is Stage.BACKWARD and not (module and self.modules.running[-1][1]):
            module, forward_calls, forward_line = self._differentiated()
            calls = (*calls, *forward_calls) if line == NO_SOURCE else calls
            line = forward_line if line == NO_SOURCE else line
        elif stage is not Stage.OPTIMIZER and torch.is_grad_enabled():
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
        forward = users = library = NO_SOURCE
        again = False
        stage = Stage.FORWARD
        codes, boundary = self._codes, self.boundary
        # Twenty frames of each op: nothing is called that is known already.
        while frame is not None and (code := frame.f_code) is not boundary:
            known = codes.get(id(code)) or self._learn(code)
            kind = known.kind
            if kind is not Code.OURS:
                if kind is Code.COMPILED:
                    self.compiled = True
                    frame = frame.f_back
                    continue
                number = known.places.get(frame.f_lasti)
                if number is None:
                    number = self._number(known, frame)
                calls.append(number)
                if kind is Code.USERS or kind is Code.FORWARD:
                    users = number if users == NO_SOURCE else users
                    if kind is Code.FORWARD and forward == NO_SOURCE:
                        forward = number
                elif kind is Code.LIBRARY:
                    library = number if library == NO_SOURCE else library
                elif kind is Code.CHECKPOINT:
                    again = True
                elif kind is Code.GRADIENT and users == NO_SOURCE:
                    stage = Stage.BACKWARD
                elif kind is Code.ENGINE:
                    stage = Stage.RECOMPUTE if again else Stage.BACKWARD
                    break
            frame = frame.f_back
        if frame is None and current_gradient() is not None:
            # A device's gradients are worked out in a thread of autograd's, in which nobody has called it.
            stage = Stage.RECOMPUTE if again else Stage.BACKWARD
        line = next((each for each in (forward, users, library) if each != NO_SOURCE), NO_SOURCE)
        return tuple(calls), line, stage

    def _learn(self, code: CodeType) -> _Known:
        kind = _kind_of(code.co_filename, code.co_name)
        known = self._codes[id(code)] = _Known(code, kind, {})
        return known

    def _number(self, known: _Known, frame: FrameType) -> int:
        """The number of a call: of its line, which several instructions have."""
        key = (id(known.code), frame.f_lineno)
        number = self._frames.get(key)
        if number is None:
            number = self._frames[key] = len(self._calls)
            self._calls.append((known.code, frame.f_lineno))
        known.places[frame.f_lasti] = number
        return number

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
    if (path, function) == COMPILER:
        return Code.COMPILED
    if is_ours(file) or path.startswith(PLUMBING):
        return Code.OURS
    if function == ENGINE:
        return Code.ENGINE
    for kind, places in ((Code.GRADIENT, AUTOGRAD), (Code.CHECKPOINT, CHECKPOINT), (Code.LIBRARY, LIBRARY)):
        if path.startswith(places):
            return kind
    if is_users(file):
        return Code.FORWARD if function == "forward" else Code.USERS
    return Code.OTHER
