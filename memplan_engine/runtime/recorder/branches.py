"""Read in the user's code what depends on a comparison of an assumed number: nothing that holds memory, or
possibly something."""

from __future__ import annotations

import ast
import builtins
import linecache
import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath
from types import FrameType
from typing import Any

import torch

from memplan_engine.runtime.recorder.checks import asking
from memplan_engine.system import parse_python
from memplan_engine.torch_capture.torch_source import PACKAGES, is_users

PLAIN = (bool, int, float, str, type(None), PurePath)
"""Types of values that hold no tensors."""
OF_NUMBERS = (abs, bool, float, int, len, max, min, round, sorted, str, sum, os.path.join)
"""Functions that give such values."""
LOGGED = ("debug", "info", "warning", "error", "critical", "exception", "log")
Assigned = ast.Assign | ast.AugAssign | ast.AnnAssign


class _Missing:
    """The value of a name that has none yet."""


MISSING = _Missing()
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)


class _Code:
    """The statements of a file, by line, and the uses of its names."""

    def __init__(self, text: str) -> None:
        self.at: dict[int, list[ast.stmt]] = {}
        """By line the statements that begin there, or whose test or value goes on there."""
        self.uses: dict[str, list[ast.stmt]] = {}
        """By name, of a variable or an attribute, the statements that read it."""
        self.scopes: dict[ast.stmt, ast.AST] = {}
        try:
            tree = parse_python(text)
            self._read(tree, tree)
        except (SyntaxError, ValueError, RecursionError):
            self.at.clear()

    def _read(self, node: ast.AST, scope: ast.AST, statement: ast.stmt | None = None) -> None:
        if isinstance(node, ast.stmt):
            statement = node
            self.scopes[node] = scope
            for line in range(node.lineno, _last_line(node) + 1):
                self.at.setdefault(line, []).append(node)
        elif statement is not None and isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if isinstance(node.ctx, ast.Load):
                self.uses.setdefault(name, []).append(statement)
        inner = node if isinstance(node, SCOPES) else scope
        for child in ast.iter_child_nodes(node):
            self._read(child, inner, statement)


def _last_line(node: ast.stmt) -> int:
    """Return the last line of a statement, without the statements inside it."""
    if isinstance(node, ast.Match) or not hasattr(node, "body"):
        return node.end_lineno or node.lineno
    parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.expr, ast.withitem)))
    ends = (each.end_lineno for part in parts for each in ast.walk(part) if isinstance(each, ast.expr))
    return max([node.lineno, *(end for end in ends if end)])


_read = cache(_Code)


def _code(file: str) -> _Code:
    linecache.checkcache(file)
    return _read("".join(linecache.getlines(file)))


def steers_memory(frame: FrameType | None) -> bool:
    """Return whether what is held may depend on the comparison that is made above `frame`.

    It does not where only numbers are assigned, logged and printed, and the names they are assigned to decide
    about nothing else in their file either. True wherever the source does not show that.
    """
    frame = asking(frame)
    if frame is None or not is_users(frame.f_code.co_filename):
        return True
    return not _Reader(frame).is_harmless()


def in_while(frame: FrameType | None) -> bool:
    """Return whether the code above `frame` is at the test of a loop, which might never end."""
    frame = asking(frame)
    if frame is None:
        return False
    found = _code(frame.f_code.co_filename).at.get(frame.f_lineno, ())
    return any(isinstance(each, ast.While) for each in found)


def is_own(frame: FrameType | None) -> bool:
    """Return whether the code above `frame` is the user's, and of no package that is installed."""
    frame = asking(frame)
    file = "" if frame is None else frame.f_code.co_filename
    return bool(file) and is_users(file) and not PACKAGES.match(file.replace("\\", "/"))


class _Reader:
    """Reads the statements at the line where `frame` is, with the values that its names have there."""

    def __init__(self, frame: FrameType) -> None:
        self.frame, self.code = frame, _code(frame.f_code.co_filename)
        self.assigned: list[str] = []
        """Names whose values depend on the comparison."""

    def is_harmless(self) -> bool:
        """Return whether no statement that depends on the comparison may hold a tensor or let one go."""
        begin = self.code.at.get(self.frame.f_lineno, [])
        if not begin or not all(map(self._passes, begin)):
            return False
        scope = self.code.scopes[begin[0]]
        # It grows meanwhile.
        for name in self.assigned:
            uses = self.code.uses.get(name, [])
            if name in self.frame.f_code.co_varnames and name not in self.frame.f_code.co_cellvars:
                uses = [use for use in uses if self.code.scopes[use] is scope]
            if not all(self.code.scopes[use] is scope and self._passes(use) for use in uses):
                return False
        return True

    def _passes(self, node: ast.stmt) -> bool:
        """Return whether `node` only assigns numbers, logs them, or chooses among such statements."""
        if isinstance(node, ast.Pass):
            return True
        if isinstance(node, ast.If):
            return self._is_test(node.test) and all(map(self._passes_in_branch, (*node.body, *node.orelse)))
        if isinstance(node, ast.Expr):
            return self._is_written(node.value) or self._is_number(node.value)
        if isinstance(node, Assigned):
            return self._is_assigned(node)
        return False

    def _passes_in_branch(self, node: ast.stmt) -> bool:
        # The test of an `elif` is no longer asked in every case.
        if isinstance(node, ast.If) and not self._is_number(node.test):
            return False
        return self._passes(node)

    def _is_test(self, node: ast.expr) -> bool:
        """Return whether all of a test is asked in every case, or nothing of it takes memory."""
        parts = list(ast.walk(node))
        for part in parts:
            if isinstance(part, ast.NamedExpr):
                self._note(part.target.id)
        return not any(map(self._may_choose, parts)) or self._is_number(node)

    def _may_choose(self, node: ast.AST) -> bool:
        """Return whether a part of a test may be left out, or depend in its size on an assumed number."""
        if isinstance(node, ast.Compare):
            return len(node.ops) > 1
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Constant)
        if isinstance(node, ast.Call):
            given = (*node.args, *(each.value for each in node.keywords))
            return not all(isinstance(each, ast.Constant) for each in given)
        return isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.comprehension))

    def _is_assigned(self, node: Assigned) -> bool:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [each for target in targets for each in _parts(target)]
        if node.value is None or not all(map(self._is_number, _parts(node.value))):
            return False
        for each in names:
            # What is overwritten is let go.
            if not isinstance(each, ast.Name) or not isinstance(self._value(each), (*PLAIN, _Missing)):
                return False
            self._note(each.id)
        return True

    def _note(self, name: str) -> None:
        if name not in self.assigned:
            self.assigned.append(name)

    def _is_written(self, node: ast.expr) -> bool:
        """Return whether `node` prints, logs, or saves what a predicted run does not save."""
        if not isinstance(node, ast.Call):
            return False
        given = [*node.args, *(each.value for each in node.keywords)]
        called = self._value(node.func)
        if called is torch.save:
            return all(self._is_saved(each) for each in given)
        if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
            by = self._value(node.func.value)
            if not (by is logging or isinstance(by, logging.Logger)):
                return False
        elif called is not builtins.print:
            return False
        return all(map(self._is_number, given))

    def _is_saved(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Dict):
            return None not in node.keys and all(
                map(self._is_saved, (*filter(None, node.keys), *node.values))
            )
        called = node.func if isinstance(node, ast.Call) and not (node.args or node.keywords) else None
        if isinstance(called, ast.Attribute) and called.attr == "state_dict":
            return _is_plain_state(self._value(called.value))
        return self._is_number(node)

    def _is_number(self, node: ast.expr | None) -> bool:
        """Return whether `node` is a number, a text or None, made without a tensor."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)):
            return isinstance(self._value(node), PLAIN)
        if isinstance(node, ast.Call):
            return self._is_call(node)
        if isinstance(node, ast.Subscript):
            return self._is_sequence(node.value) and self._is_number(node.slice)
        kinds = (
            ast.BinOp,
            ast.UnaryOp,
            ast.BoolOp,
            ast.Compare,
            ast.IfExp,
            ast.JoinedStr,
            ast.FormattedValue,
        )
        if isinstance(node, (*kinds, ast.Tuple)):
            parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            return all(map(self._is_number, parts))
        return False

    def _is_sequence(self, node: ast.expr) -> bool:
        """Return whether `node` is a list of numbers."""
        if isinstance(node, ast.Call) and self._value(node.func) is sorted:
            return self._is_call(node)
        value = self._value(node)
        return isinstance(value, (list, tuple)) and all(isinstance(each, PLAIN) for each in value)

    def _is_call(self, node: ast.Call) -> bool:
        if self._is_item(node):
            return True
        called = self._value(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            known = isinstance(node.func.value, ast.Constant)
        else:
            known = (
                any(called is each for each in OF_NUMBERS) or getattr(called, "__module__", None) == "math"
            )
        given = [*node.args, *(each.value for each in node.keywords)]
        if called is len and all(isinstance(each, (ast.Name, ast.Attribute)) for each in given):
            return True
        return known and all(self._is_number(each) or self._is_sequence(each) for each in given)

    def _is_item(self, node: ast.Call) -> bool:
        """Return whether `node` is `x.item()` of a tensor that is there."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "item" or node.args:
            return False
        return isinstance(self._value(node.func.value), torch.Tensor)

    def _value(self, node: ast.expr) -> Any:
        """Return the value of a name or of an attribute of one; MISSING of all else."""
        if isinstance(node, ast.Name):
            spaces = (self.frame.f_locals, self.frame.f_globals, self.frame.f_builtins)
            return next((space[node.id] for space in spaces if node.id in space), MISSING)
        if isinstance(node, ast.Attribute):
            # A property would run code of the user's.
            return getattr(self._value(node.value), "__dict__", {}).get(node.attr, MISSING)
        return MISSING


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Tuple):
        yield from node.elts
    else:
        yield node


def _is_plain_state(owner: Any) -> bool:
    """Return whether `owner.state_dict()` makes no tensors: a module may gather parameters there."""
    if isinstance(owner, torch.nn.Module):
        hooked = any(each._state_dict_hooks or each._state_dict_pre_hooks for each in owner.modules())
        return not hooked and type(owner).state_dict is torch.nn.Module.state_dict
    return isinstance(owner, torch.optim.Optimizer) and not owner._optimizer_state_dict_post_hooks
