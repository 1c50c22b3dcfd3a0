"""Which part of a line of Python each of its ops is, where the line itself tells."""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator

from memplan_engine.graph import Op, Phase, Source
from memplan_engine.rewrites.reuse.kinds import plain_kind
from memplan_engine.system import parse_python

MOST_LETTERS = 500
"""Of a line that is read; longer ones are data."""
WHOLE, LONG = 60, 24
"""Expressions of more letters than WHOLE are told without their parts of more than LONG."""
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}


def sub_expressions(ops: Iterable[Op]) -> dict[str, str]:
    """The part of its line that each op computes, by the op's name: "0.5 * input". Only of lines whose
    operators and calls are, in the order in which Python evaluates them, the ops that came of the line in one
    module, once or several times; of any other line nothing is said."""
    groups: dict[tuple[Source, str, Phase | None], list[Op]] = defaultdict(list)
    for op in ops:
        if op.source is not None and op.kind.startswith("aten."):
            groups[op.source, op.module, op.phase].append(op)
    parts_of: dict[str, list[tuple[str, str]]] = {}
    told: dict[str, str] = {}
    for (source, _, _), members in groups.items():
        if source.code not in parts_of:
            parts_of[source.code] = _parts(source.code)
        parts = parts_of[source.code]
        named = {name for name, _ in parts}
        members = [op for op in members if plain_kind(op.kind) in named]
        made = {plain_kind(op.kind) for op in members}
        parts = [part for part in parts if part[0] in made]
        times = len(members) // len(parts) if parts else 0
        if times and [plain_kind(op.kind) for op in members] == [name for name, _ in parts] * times:
            told |= {op.name: text for op, (_, text) in zip(members, parts * times, strict=True)}
    return told


def _parts(code: str) -> list[tuple[str, str]]:
    """What a line computes, in order: the plain kind and the text of each operator and call."""
    if len(code) > MOST_LETTERS:
        return []
    code = code.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse_python(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    parts = [(name, ast.get_source_segment(code, node) or "") for node, name in evaluated(tree)]
    return [(name, _short(text, [part for _, part in parts])) for name, text in parts]


def _short(text: str, parts: Iterable[str]) -> str:
    """`text`, if it is long the long ones of `parts` in it as "…"."""
    if len(text) <= WHOLE:
        return text
    for part in sorted(parts, key=len, reverse=True):
        if LONG < len(part) < len(text):
            text = text.replace(part, "…")
    return text


def evaluated(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The operators and calls below `node` with their plain kinds, what is evaluated first first. Arithmetic
    of numbers leaves no op."""
    for child in ast.iter_child_nodes(node):
        yield from evaluated(child)
    if _is_number(node):
        return
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield node, plain_kind(name)
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        yield node, _OPERATORS.get(type(node.op), "")


def _is_number(node: ast.AST) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names <= {"math", "np", "numpy"}
