"""Read in the code that asks for a value: which answer has a check pass (`if not valid.all(): raise …` and
`assert valid.all()`), and whether it chooses a part of a tensor."""

from __future__ import annotations

import ast
import linecache
from dis import opname
from functools import cache
from opcode import _nb_ops  # type: ignore[attr-defined]
from types import FrameType

from memplan_engine.system import parse_python
from memplan_engine.torch_capture.torch_source import is_ours, portable_path

PLUMBING = (
    "torch/_compile.py",
    "torch/_dynamo/",
    "torch/_ops.py",
    "torch/_subclasses/",
    "torch/overrides.py",
    "torch/utils/_device.py",
    "torch/utils/_python",
)
"""Through which torch calls a mode."""
INDEXING = ("BINARY_SUBSCR", "STORE_SUBSCR")
SUBSCRIPT = next((place for place, (name, _) in enumerate(_nb_ops) if name == "NB_SUBSCR"), -1)
"""Operations of Python that index."""


def passing(frame: FrameType | None) -> bool | None:
    """Return what the truth that the code above `frame` asks for has to be, or an error is raised; None where
    it does not say."""
    frame = asking(frame)
    return None if frame is None else _checks(frame.f_code.co_filename).get(frame.f_lineno)


def is_indexing(frame: FrameType | None) -> bool:
    """Return whether the code above `frame` is at `x[i]` or `x[i] = y`."""
    frame = asking(frame)
    if frame is None or frame.f_lasti < 0:
        return False
    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    name = opname[operation]
    # Python 3.14 has one operation for all that takes two values.
    return name in INDEXING or (name == "BINARY_OP" and argument == SUBSCRIPT)


def asking(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame from `frame` on that is neither ours nor a way of torch's to a mode."""
    while frame is not None and _is_plumbing(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@cache
def _is_plumbing(file: str) -> bool:
    return is_ours(file) or portable_path(file).startswith(PLUMBING)


@cache
def _checks(file: str) -> dict[int, bool]:
    """By line the answer that has the check there pass; lines that ask for several truths are left out."""
    try:
        tree = parse_python("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    checks: dict[int, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            test, passes = node.test, True
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            test, passes = node.test, False
        else:
            continue
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, passes = test.operand, not passes
        if not isinstance(test, (ast.BoolOp, ast.IfExp)):
            checks |= dict.fromkeys(range(test.lineno, (test.end_lineno or test.lineno) + 1), passes)
    return checks
