"""The grid of a sweep, a TOML file: a script, its arguments with {names} in them, and the values of these.

script = "train.py"
world = 8
device = "h100-80"
arguments = ["--tp", "{tp}", "--pp", "{pp}", "--batch", "{batch}"]
constraints = ["tp * pp <= world"]
largest = "batch"

[values]
tp = [1, 2, 4]
pp = [1, 2]
batch = [1, 2, 4, 8]
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan_engine.accelerators.presets import USUAL, accelerator
from memplan_engine.errors import InputError
from memplan_engine.recordings.configuration import Configuration, Value
from memplan_engine.system import parse_python

MOST = 4096
"""Configurations of a grid: at a quarter of a minute each a day's work, and more is a slip."""
KEYS = {"script", "world", "device", "arguments", "constraints", "largest", "values"}
HOLE = re.compile(r"\{(\w+)\}")
OPERATORS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
SIGNS = "names of the grid, numbers, texts, + - * / // %, comparisons, and, or, not"


@dataclass(frozen=True)
class Grid:
    """What a sweep goes through: `configurations` without their runs. Of those that differ in `largest`
    alone (a name, or empty) only as many are run as show which is the largest that fits."""

    script: Path
    configurations: tuple[Configuration, ...]
    largest: str = ""


def read_grid(path: Path) -> Grid:
    """The grid of the file `path`; its script lies relative to it.

    Raises
    ------
    InputError: a file that is no such grid, with the key.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), "", error.strerror or str(error), "a grid, as TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), "", str(error), "a grid, as TOML") from None
    file = _File(path, said)
    return file.grid()


@dataclass
class _File:
    path: Path
    said: dict[str, Any]

    def refuse(self, place: str, found: str, expected: str) -> InputError:
        return InputError(str(self.path), place, found, expected)

    def grid(self) -> Grid:
        for key in self.said:
            if key not in KEYS:
                raise self.refuse(key, "an unknown key", f"one of {', '.join(sorted(KEYS))}")
        script, values = self.said.get("script"), self.values()
        if not isinstance(script, str):
            raise self.refuse("script", repr(script), 'the name of a script, as script = "train.py"')
        arguments, constraints = self.texts("arguments"), self.texts("constraints")
        largest = self.said.get("largest", "")
        if largest and (
            largest not in values or not all(isinstance(each, (int, float)) for each in values[largest])
        ):
            raise self.refuse("largest", repr(largest), "the name of values that are numbers")
        rules = [self.rule(text, values) for text in constraints]
        made = []
        for choice in itertools.product(*values.values()):
            chosen = dict(zip(values, choice, strict=True))
            if all(rule(chosen) for rule in rules):
                made.append(self.configuration(chosen, arguments))
        if not made:
            raise self.refuse("constraints", "no configuration that meets all", "values that meet them")
        return Grid(self.path.parent / script, tuple(made), largest)

    def values(self) -> dict[str, list[Value]]:
        given = self.said.get("values", {})
        if not isinstance(given, dict):
            raise self.refuse("values", repr(given), "a table, as [values]")
        values: dict[str, list[Value]] = {}
        fixed = {"world": self.said.get("world"), "device": self.said.get("device", USUAL)}
        for name, some in {**fixed, **given}.items():
            several = some if isinstance(some, list) else [some]
            if not several or not all(type(each) in (int, float, str) for each in several):
                raise self.refuse(name, repr(some), "numbers or texts, as [1, 2, 4]")
            values[name] = list(dict.fromkeys(several))
        for world in values["world"]:
            if not isinstance(world, int) or world < 1:
                raise self.refuse("world", repr(world), "the number of ranks, as world = 8")
        for device in values["device"]:
            accelerator(str(device))
        count = 1
        for several in values.values():
            count *= len(several)
        if count > MOST:
            raise self.refuse("values", f"{count:,} configurations", f"at most {MOST:,}")
        return values

    def texts(self, key: str) -> list[str]:
        given = self.said.get(key, [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise self.refuse(key, repr(given), 'texts, as ["--tp", "{tp}"]')
        return given

    def rule(self, text: str, names: dict[str, Any]) -> Callable[[dict[str, Value]], bool]:
        try:
            tree = parse_python(text, mode="eval").body
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node.id not in names:
                    raise self.refuse("constraints", f"{node.id!r} in {text!r}", f"one of {', '.join(names)}")
        except (SyntaxError, ValueError, RecursionError):
            raise self.refuse("constraints", repr(text), SIGNS) from None

        def holds(values: dict[str, Value]) -> bool:
            try:
                return bool(evaluated(tree, values))
            except (TypeError, ZeroDivisionError, ValueError, RecursionError) as error:
                raise self.refuse("constraints", f"{text!r}: {error}", SIGNS) from None

        return holds

    def configuration(self, values: dict[str, Value], arguments: Sequence[str]) -> Configuration:
        def filled(text: str) -> str:
            for name in HOLE.findall(text):
                if name not in values:
                    raise self.refuse("arguments", f"{{{name}}}", f"one of {', '.join(values)}")
            return HOLE.sub(lambda hole: str(values[hole[1]]), text)

        shown = {
            name: value
            for name, value in values.items()
            # What is the same everywhere tells no two apart.
            if name in self.said.get("values", {}) or isinstance(self.said.get(name), list)
        }
        given = tuple(map(filled, arguments))
        return Configuration(shown, given, int(values["world"]), str(values["device"]))


def evaluated(node: ast.expr, values: dict[str, Value]) -> Any:
    """The value of an expression of SIGNS; ValueError for anything else."""
    match node:
        case ast.Constant(value=int() | float() | str()):
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.BinOp() if type(node.op) in OPERATORS:
            left, right = evaluated(node.left, values), evaluated(node.right, values)
            if isinstance(left, str) or isinstance(right, str):
                raise TypeError("texts are compared, not computed with")
            return OPERATORS[type(node.op)](left, right)
        case ast.BoolOp():
            several = [evaluated(each, values) for each in node.values]
            return all(several) if isinstance(node.op, ast.And) else any(several)
        case ast.UnaryOp(op=ast.Not()):
            return not evaluated(node.operand, values)
        case ast.Compare() if all(type(each) in OPERATORS for each in node.ops):
            several = [evaluated(each, values) for each in (node.left, *node.comparators)]
            pairs = zip(several, several[1:], node.ops, strict=False)
            return all(OPERATORS[type(sign)](left, right) for left, right, sign in pairs)
    raise ValueError(f"{ast.unparse(node)!r} is none of these")
