"""The optimizer moved into the backward pass, in the step of the user's own source: each gradient is used and
let go as soon as it is complete."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import count

from memplan_engine.advice.source_edits import Edited
from memplan_engine.graph import Graph, Phase
from memplan_engine.system import parse_python

NO_STEP = "the step is not written in this file: one of your own, `step` in what the factory returns, can be"
_SEVERAL = "several calls of step(): each optimizer would need hooks of its own parameters"
_NO_BACKWARD = "no backward() before it in the same block"
_NOT_ALONE = "not a statement on a line of its own"


def update_in_backward(text: str, file: str, graph: Graph) -> Edited:
    """`text`, the source `file` of ops of `graph`, whose `optimizer.step()` runs in hooks of the gradients.

    The optimizer is the same one: in a hook only one parameter has a gradient, and the others are passed
    over. After such a step no gradient is there. `left` says why there is no such edit, by the line of the
    step, 0 where the file has none. Raises SyntaxError for text that is no Python.
    """
    updating = {
        op.source.line
        for op in graph.ops
        if op.phase is Phase.OPTIMIZER and op.source is not None and op.source.file == file
    }
    tree, lines = parse_python(text), text.splitlines(keepends=True)
    found = [
        (block, at)
        for block in _blocks(tree)
        for at, statement in enumerate(block)
        if statement.lineno in updating and _receiver(statement, "step", bare=True)
    ]
    if len(found) != 1:
        line, why = (min(updating), _SEVERAL) if found else (0, NO_STEP)
        return Edited(text, (), ((line, why),))
    (block, at), *_ = found
    step = block[at]
    backward = next((each for each in block[:at][::-1] if _receiver(each, "backward")), None)
    if backward is None:
        return Edited(text, (), ((step.lineno, _NO_BACKWARD),))
    if not all(_is_alone(each, lines) for each in (backward, step)):
        return Edited(text, (), ((step.lineno, _NOT_ALONE),))
    indent = lines[step.lineno - 1][: step.col_offset]
    hooked = _hooked(_receiver(step, "step"), indent, _names(tree))
    whole = lines[backward.lineno - 1 : backward.end_lineno]
    if not whole[-1].endswith("\n"):
        whole[-1] += "\n"
    del lines[step.lineno - 1 : step.end_lineno]
    lines[backward.lineno - 1 : backward.end_lineno] = [*hooked[:-2], *whole, *hooked[-2:]]
    return Edited("".join(lines), (backward.lineno, step.lineno), frees_gradients=True)


def _hooked(optimizer: str, indent: str, taken: set[str]) -> list[str]:
    """The lines before backward(), and the two after it."""
    update, owned, hooks, hook = (
        next(each for each in (name + "_" * more for more in count()) if each not in taken)
        for name in ("update_now", "owned", "hooks", "hook")
    )
    lines = (
        f"def {update}(parameter):",
        f"    {optimizer}.step()",
        "    parameter.grad = None",
        f'{owned} = [each for group in {optimizer}.param_groups for each in group["params"]]',
        f"{owned} = [each for each in {owned} if each.requires_grad]",
        f"{hooks} = [each.register_post_accumulate_grad_hook({update}) for each in {owned}]",
        f"for {hook} in {hooks}:",
        f"    {hook}.remove()",
    )
    return [f"{indent}{line}\n" for line in lines]


def _blocks(tree: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _receiver(statement: ast.stmt, method: str, bare: bool = False) -> str:
    """What `statement` calls `method` on, "optimizer"; "" for any other statement. `bare`: without
    arguments, and on a name."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ""
    if call.func.attr != method:
        return ""
    named = all(isinstance(each, ast.Name | ast.Attribute) for each in _chain(call.func.value))
    if bare and (call.args or call.keywords or not named):
        return ""
    return ast.unparse(call.func.value)


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """`a.b.c`, `a.b`, `a`."""
    yield node
    while isinstance(node, ast.Attribute):
        node = node.value
        yield node


def _is_alone(statement: ast.stmt, lines: Sequence[str]) -> bool:
    first, last = lines[statement.lineno - 1], lines[(statement.end_lineno or statement.lineno) - 1]
    before = first.encode()[: statement.col_offset].decode()
    after = last.encode()[statement.end_col_offset :].decode().strip()
    return not before.strip() and (not after or after.startswith("#"))


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
