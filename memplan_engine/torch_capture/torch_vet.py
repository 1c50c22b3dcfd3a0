"""What a serialized exported program may hold before torch's own reader is let near it.

That reader evaluates symbolic sizes as Python expressions, looks operators up by attribute path from `torch`,
and puts node names into source that it executes. Files come from anybody, so names must be names, expressions
arithmetic, and operators registered operators.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from memplan_engine.errors import InputError

IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?")
SYMBOL = re.compile(r"[a-z]+\d+")
NUMBER = re.compile(r"-?[0-9.]{1,40}(e[-+]?[0-9]{1,3})?")
HIGHER_ORDER = frozenset(
    {
        "associative_scan", "auto_functionalized", "auto_functionalized_v2", "cond", "flex_attention",
        "map_impl", "scan", "while_loop", "wrap_with_autocast", "wrap_with_set_grad_enabled",
    }
)  # fmt: skip
TOUCHES_FILES = frozenset({"aten::from_file", "aten::save"})
FUNCTIONS = frozenset(
    {
        "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float", "FloatPow",
        "FloatTrueDiv", "FloorDiv", "FloorToInt", "GreaterThan", "Identity", "IntTrueDiv", "Integer",
        "LessThan", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Ne", "Not", "Or", "Pow", "PowByNatural",
        "PythonMod", "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan", "StrictLessThan",
        "Symbol", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where", "ceiling", "floor",
    }
)  # fmt: skip
POWERS = ("Pow", "PowByNatural", "FloatPow")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.USub, ast.UAdd)
MAX_EXPRESSION = 2000
MAX_EXPONENT = 8


def vet_program(model: Any, source: str) -> None:
    """Walk a program's JSON, and raise InputError at the first thing that has no business in it."""
    for item in _dictionaries(model):
        for key in ("name", "as_name"):
            if isinstance(item.get(key), str) and not IDENTIFIER.fullmatch(item[key]):
                raise InputError(source, key, repr(item[key]), "an identifier")
        for key, kinds in (("as_int", int), ("as_float", (int, float, str)), ("as_bool", int)):
            if key in item and not isinstance(item[key], kinds):
                raise InputError(source, key, repr(item[key]), "a number")
        if "expr_str" in item:
            _vet_expression(item["expr_str"], source)
        if "as_operator" in item:
            _vet_operator(item["as_operator"], "as_operator", source)
        if "target" in item and "inputs" in item:
            _vet_operator(item["target"], f"node {item.get('name')!r}", source)
            item["metadata"] = _plain_metadata(item.get("metadata"))


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _plain_metadata(metadata: Any) -> dict[str, str]:
    """The two entries that are used: the rest would be looked up or decoded for nothing."""
    kept = metadata if isinstance(metadata, dict) else {}
    keys = ("stack_trace", "nn_module_stack")
    return {key: kept[key] for key in keys if isinstance(kept.get(key), str)}


def _vet_expression(text: Any, source: str) -> None:
    """Both printed forms of sympy are fine: `2*s0`, and `Mul(Integer(2), Symbol('s0', integer=True))`."""
    try:
        sound = isinstance(text, str) and len(text) <= MAX_EXPRESSION
        sound = sound and _is_arithmetic(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        sound = False
    if not sound:
        raise InputError(source, "expr_str", repr(text)[:80], "an arithmetic expression of symbols")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return bool(SYMBOL.fullmatch(node.id)) or node.id in ("true", "false")
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float)) and abs(node.value) < 2**64
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, OPERATORS) and _is_arithmetic(node.operand)
    if isinstance(node, ast.BinOp):
        sound = isinstance(node.op, OPERATORS) or (isinstance(node.op, ast.Pow) and _is_small(node.right))
        return sound and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    if isinstance(node, ast.Compare):
        return all(map(_is_arithmetic, (node.left, *node.comparators)))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        return False
    flags = [keyword.value for keyword in node.keywords]
    if not all(isinstance(flag, ast.Constant) and isinstance(flag.value, (bool, int)) for flag in flags):
        return False
    if node.func.id in POWERS and not (len(node.args) == 2 and _is_small(node.args[1])):
        return False
    if node.func.id in ("Symbol", "Float"):
        pattern = SYMBOL if node.func.id == "Symbol" else NUMBER
        return [isinstance(a, ast.Constant) and bool(pattern.fullmatch(str(a.value))) for a in node.args] == [
            True
        ]
    return all(map(_is_arithmetic, node.args))


def _is_small(node: ast.AST) -> bool:
    """Whether `node` is an exponent that cannot make a number of millions of digits."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        return isinstance(node.func, ast.Name) and node.func.id == "Integer" and _is_small(node.args[0])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_small(node.operand)
    return isinstance(node, ast.Constant) and node.value in range(MAX_EXPONENT + 1)


def _vet_operator(target: Any, place: str, source: str) -> None:
    if not (isinstance(target, str) and _is_operator(target)):
        raise InputError(
            source,
            place,
            f"the operator {target!r}",
            "one that this torch knows (a custom one once the package that defines it is imported)",
        )


def _is_operator(target: str) -> bool:
    import torch
    from torch._export.serde.serialize import _SYM_OPS

    if target.startswith("torch.ops.higher_order."):
        return target.removeprefix("torch.ops.higher_order.") in HIGHER_ORDER
    if target in {f"{op.__module__}.{op.__name__}" for op in _SYM_OPS} | {"_operator.getitem"}:
        return True
    parts = target.split(".")
    if len(parts) != 5 or parts[:2] != ["torch", "ops"] or not all(map(str.isidentifier, parts)):
        return False
    try:
        found = getattr(getattr(getattr(torch.ops, parts[2]), parts[3]), parts[4])
    except (AttributeError, RuntimeError):
        return False
    return isinstance(found, torch._ops.OpOverload) and found._schema.name not in TOUCHES_FILES
