"""Mutants of a module: its source with one operator, number or statement changed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub,
    ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SKIPPED = ("annotation", "returns", "decorator_list", "type_comment")


@dataclass(frozen=True)
class Mutant:
    """`function` is the outermost function that is changed, or the name of a constant of the module."""

    function: str
    change: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"`{self.function}`: `{self.change}`"


def mutants(source: str) -> list[Mutant]:
    """Every mutant of `source`, in the order of its lines."""
    number, found = 0, []
    seen: Counter[tuple[str, str]] = Counter()
    while True:
        tree = ast.parse(source)
        for place, (function, before, after, put) in enumerate(_changes(tree)):
            if place == number:
                change = f"{_text(before)} → {_text(after)}"
                put(after)
                seen[function, change] += 1
                change += f" ({seen[function, change]})" if seen[function, change] > 1 else ""
                found.append(Mutant(function, change, ast.fix_missing_locations(tree)))
                break
        else:
            return found
        number += 1


def by_hand(source: str, old: str, new: str) -> Mutant:
    """The mutant in which `new` stands for the only `old` of the source."""
    assert source.count(old) == 1, f"not once in the source: {old}"
    tree, line = ast.parse(source.replace(old, new)), source[: source.index(old)].count("\n") + 1
    for function, node in _outermost(tree):
        if node.lineno <= line <= (node.end_lineno or 0):
            return Mutant(function, f"{old} → {new}", tree)
    raise AssertionError(f"in no function: {old}")


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def _outermost(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The functions, the methods and the constants of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield f"{node.name}.{each.name}", each
        elif isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.AST, Callable[[ast.AST], None]]]:
    """The function, what stands there, what may stand there instead, and how it is put there."""
    for function, node in _outermost(tree):
        parts = node.body if isinstance(node, ast.FunctionDef) else [node.value]  # type: ignore[attr-defined]
        for index, part in enumerate(parts):
            holder, field = (node, "body") if isinstance(node, ast.FunctionDef) else (node, "value")
            for before, after, put in _of(part, holder, field, index):
                yield function, before, after, put


def _of(
    node: ast.AST, holder: ast.AST, field: str, index: int
) -> Iterator[tuple[ast.AST, ast.AST, Callable[[ast.AST], None]]]:
    def put(new: ast.AST) -> None:
        if isinstance(getattr(holder, field), list):
            getattr(holder, field)[index] = new
        else:
            setattr(holder, field, new)

    for after in _instead(node):
        yield node, after, put
    for name, value in ast.iter_fields(node):
        if name not in SKIPPED:
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, ast.AST) and getattr(child, "arg", "") != "strict":
                    yield from _of(child, node, name, place)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand instead of `node`; strings stay as they are."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=right):
            for place, each in enumerate(ops):
                swapped = [SWAPS[type(op)]() if at == place else op for at, op in enumerate(ops)]
                if type(each) in SWAPS:
                    yield ast.Compare(left, swapped, right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS:
            yield ast.BinOp(left, SWAPS[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(SWAPS[type(op)](), values)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield ast.Name(NAMES[name], ast.Load())
        case ast.If(test=(ast.Name() | ast.Attribute() | ast.Call()) as test, body=body, orelse=orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.AugAssign(target=target, op=op, value=value):
            yield ast.Pass()
            if type(op) in SWAPS:
                yield ast.AugAssign(target, SWAPS[type(op)](), value)
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Pass()
