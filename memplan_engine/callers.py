"""Call stacks, each held once, and who in them asked for the memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

from memplan_engine.graph import Source
from memplan_engine.kernels.types import Ints

UNKNOWN_STACK = -1
_ATEN = re.compile(r"^(?:at::_ops::|aten::)(\w+)(?:::|$)")
_NODE = re.compile(
    r"^(?:torch::autograd::(?:generated::)?(?=\w+::apply\()|autograd::engine::evaluate_function: )(\w+)"
)
_PLUMBING = re.compile(r"unwind|Traceback|gather_with_cpp|CachingAllocator|at::detail::|empty")
_LIBRARY = re.compile(r"(^|/)torch(_npu)?/|(^|/)runpy\.py$|^<frozen ")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: the function, its file and the line in it."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked for the memory: `kind` is the operation, `source` the innermost line of Python outside of
    PyTorch, `label` a short name for it, `module` that of its file and function, as "train.forward"."""

    kind: str
    label: str
    source: Source | None
    module: str = ""


BACKWARD = Frame("backward", "??", 0)
"""What stands for a backward pass without a line of the user's in it."""
NOBODY = Caller("buffer", "no stack recorded", None)


@dataclass(frozen=True, eq=False)
class Stacks:
    """`frames`, and each stack as their numbers, the innermost call first."""

    frames: tuple[Frame, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def callers(self) -> tuple[Caller, ...]:
        """Of each stack its caller: found when somebody asks, for there are as many stacks as ops."""
        return tuple(find_caller([self.frames[frame] for frame in stack]) for stack in self.stacks)

    def caller(self, stack: int) -> Caller:
        """The caller of a stack; NOBODY for UNKNOWN_STACK."""
        return self.callers[stack] if stack >= 0 else NOBODY

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """The calls of a stack, the innermost first."""
        return tuple(self.frames[frame] for frame in self.stacks[stack]) if stack >= 0 else ()


@dataclass(frozen=True, slots=True, eq=False)
class Callers:
    """Which of `stacks` asked for each buffer of a problem: `stack` is an int64 array of n."""

    stack: Ints
    stacks: Stacks

    def of(self, buffer: int) -> Caller:
        """Who asked for `buffer`."""
        return self.stacks.caller(int(self.stack[buffer]))

    def select(self, rows: Ints) -> Callers:
        """The same for the buffers `rows`."""
        return Callers(self.stack[rows], self.stacks)


def find_caller(frames: Sequence[Frame]) -> Caller:
    """The innermost line of Python outside PyTorch, else of Python, else the operation or the node of the
    autograd graph: backward passes run in threads of C++ alone."""
    python = [frame for frame in frames if _is_python(frame.file)]
    innermost = next((frame for frame in python if not _is_library(frame.file)), None) or next(
        iter(python), None
    )
    operations = [name for name in (_first(_ATEN, frame.function) for frame in frames) if name]
    # What allocates within an operation is "empty" and its relatives.
    operation = next(
        (name for name in operations if not name.startswith("empty")), next(iter(operations), "")
    )
    if innermost:
        module = f"{PurePosixPath(_short(innermost.file)).stem}.{innermost.function}"
        source = Source(innermost.file, innermost.line)
        return Caller(operation or innermost.function, line_label(innermost), source, module)
    node = next(filter(None, (_first(_NODE, frame.function) for frame in frames)), "")
    outside = next((frame.function for frame in frames if not _PLUMBING.search(frame.function)), "")
    label = node or operation or outside
    module = BACKWARD.function if BACKWARD in frames else ""
    return Caller(operation or label, label, None, module) if label else NOBODY


def line_label(frame: Frame) -> str:
    """ "train.py:12 forward"; of a call outside of Python the function alone, without its arguments."""
    if _is_python(frame.file):
        return f"{_short(frame.file)}:{frame.line} {frame.function}"
    return frame.function.partition("(")[0] or frame.function


def only_allocates(frame: Frame) -> bool:
    """Whether a call outside of Python does no more than allocate, or record that."""
    return not _is_python(frame.file) and bool(_PLUMBING.search(frame.function))


def stands_in_library(frame: Frame) -> bool:
    """Whether a call is PyTorch's own, or none of Python at all."""
    return not _is_python(frame.file) or _is_library(frame.file)


def _short(file: str) -> str:
    return PurePosixPath(file.replace("\\", "/")).name


@lru_cache(4096)
def _is_python(file: str) -> bool:
    return file.endswith(".py") or file.startswith("<")


@lru_cache(4096)
def _is_library(file: str) -> bool:
    return bool(_LIBRARY.search(file.replace("\\", "/")))


@lru_cache(65536)
def _first(pattern: re.Pattern[str], function: str) -> str:
    match = pattern.search(function)
    return match[1] if match else ""
