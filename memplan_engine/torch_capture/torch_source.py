"""Where an exported node comes from: the user's source line, and a path that is the same on every machine."""

from __future__ import annotations

import linecache
import re
from functools import cache
from pathlib import Path, PurePosixPath
from sysconfig import get_path
from traceback import walk_tb

from memplan_engine.graph import Source

FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in .*$')
PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
ENGINE = str(Path(__file__).parents[1])
OTHERS = (ENGINE, get_path("stdlib"), "<")
"""Folders of code that is nobody's model."""
WRAPPERS = ("torch/", "typing_extensions.py")
"""Packages whose frames are no line of the user's."""
MAX_CODE = 200
"""Characters of a source line that are kept."""


def source_of(stack_trace: str | None) -> Source | None:
    """The innermost frame of `stack_trace` that is neither torch's own nor generated code, or just the
    innermost one if all are.

    `stack_trace` is Python's format, outermost frame first, as `torch.export` keeps it in a node's meta.
    """
    frames = _frames(stack_trace or "")
    ours = [frame for frame in frames if not frame.file.startswith(("torch/", "<"))]
    best = ours or frames
    return best[-1] if best else None


def source_of_error(error: BaseException) -> Source | None:
    """The innermost line of the user's own code that `error` went through; None where there is none."""
    source: Source | None = None
    for frame, number in walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if is_users(path):
            code = linecache.getline(path, number).strip()[:MAX_CODE]
            source = Source(portable_path(path), number, code)
    return source


@cache
def is_users(file: str) -> bool:
    """Whether `file` is neither torch's nor Python's nor ours."""
    return not file.startswith(OTHERS) and not portable_path(file).startswith(WRAPPERS)


def is_ours(file: str) -> bool:
    """Whether `file` is part of memplan's engine."""
    return file.startswith(ENGINE)


def located(message: str, error: BaseException) -> str:
    """`message`, with the line of the user's code that `error` went through."""
    line = source_of_error(error)
    return f"{message} at {line.file}:{line.line}" if line else message


def _frames(stack_trace: str) -> list[Source]:
    frames: list[Source] = []
    lines = stack_trace.splitlines()
    for number, text in enumerate(lines):
        frame = FRAME.match(text)
        if frame is None:
            continue
        after = lines[number + 1].strip() if number + 1 < len(lines) else ""
        code = "" if FRAME.match(after) else after[:MAX_CODE]
        frames.append(Source(portable_path(frame["file"]), int(frame["line"]), code))
    return frames


def portable_path(file: str) -> str:
    """`file` relative to site-packages or to the current folder where it lies in one, with "/" between
    the parts."""
    posix = file.replace("\\", "/")
    inside = PACKAGES.sub("", posix)
    if inside != posix:
        return inside
    try:
        return str(PurePosixPath(Path(file).relative_to(Path.cwd())))
    except (ValueError, OSError):
        return posix
