"""What a rewrite does, done in the user's own source: a file with some calls in place and some statements
moved, and the unified diff of it. Nothing here runs the source; whether the edits do what they should is for
who captures the file again."""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memplan_engine.advice.code import WITH_FLAG
from memplan_engine.advice.expressions import evaluated
from memplan_engine.graph import Graph, Op, Phase, Source
from memplan_engine.rewrites.reuse.kinds import has_in_place_form, plain_kind
from memplan_engine.system import parse_python

AUGMENTED: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
"""Operators whose statement `x = x + y` can be `x += y`."""
_LAYER = "a layer that is called there has no call of its own: give it inplace=True where it is made"
_NO_WORDS = "no call or operator in the line that is this op alone"
_WITHIN = "one change of the line stands within another"
_BRANCHES = "the line runs several graphs, and does not tell which of them the op is in"
_SOME = "the line runs several times, and not each time in place"
Span = tuple[int, int, int, int]
"""Where in the source something stands: line and byte of the beginning and of the end, lines from 1 on."""


@dataclass(frozen=True, slots=True)
class Edited:
    """`text` is the file after the edits at the 1-based `lines`; `left` says of other lines why nothing of it
    is done there. `frees_gradients`: after a training step there are none any more."""

    text: str
    lines: tuple[int, ...]
    left: tuple[tuple[int, str], ...] = ()
    frees_gradients: bool = False


def write_in_place(text: str, file: str, graph: Graph, over: Mapping[str, str]) -> Edited:
    """`text`, the source `file` of ops of `graph`, in which calls write over what they read where `over` says
    so, op by op: `F.relu(x, inplace=True)`, `torch.relu_(x)`, `x.exp_()`, `x += y`, `nn.ReLU(inplace=True)`.

    Only where each run of the line is in place and the line tells which part of it the op is. Raises
    SyntaxError for text that is no Python.
    """
    tree, lines = parse_python(text), text.splitlines()
    groups: dict[tuple[int, str], list[Op]] = defaultdict(list)
    codes: dict[int, str] = {}
    for op in graph.ops:
        if op.source is not None and op.source.file == file and op.phase is not Phase.BACKWARD:
            groups[op.source.line, plain_kind(op.kind)].append(op)
            codes[op.source.line] = op.source.code.strip()
    edits: dict[Span, str] = {}
    left: dict[int, str] = {}
    for (line, kind), ops in groups.items():
        chosen = [op for op in ops if op.name in over]
        # Of another version of the file the graph tells nothing.
        if not chosen or line > len(lines) or lines[line - 1].strip() != codes[line]:
            continue
        if len(chosen) < len(ops) or len({op.within for op in ops}) > 1:
            left[line] = _SOME if len(chosen) < len(ops) else _BRANCHES
            continue
        firsts = {op.inputs[0] == over[op.name] for op in ops}
        found = _in_line(tree, text, line, kind, ops, firsts == {True})
        if isinstance(found, str):
            left.setdefault(line, found)
        elif any(_overlap(one, other) for one in found for other in edits if one != other):
            left.setdefault(line, _WITHIN)
        else:
            edits |= found
            left.pop(line, None)
    changed = tuple(sorted({span[0] for span in edits}))
    return Edited(_applied(text, edits), changed, tuple(sorted(left.items())))


def edited_line(graph: Graph, source: Source, over: Mapping[str, str]) -> str:
    """The line `source` of `graph` with its ops in place as `over` says; "" where the line alone does not
    tell how for each of them, or not each run of it is in place."""
    begin = "def _(self):\n    "
    text = begin + source.code.strip()
    ops = [replace(op, source=replace(source, line=2)) for op in graph.ops if op.source == source]
    kinds = {op.kind for op in ops if op.name in over}
    for kind in sorted(kinds):
        alike = replace(graph, ops=tuple(op for op in ops if op.kind == kind))
        try:
            edited = write_in_place(text, source.file, alike, over)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
        if edited.text == text:
            return ""
        text = edited.text
        ops = [replace(op, source=Source(source.file, 2, text.removeprefix(begin))) for op in ops]
    return text.removeprefix(begin) if kinds else ""


def _in_line(
    tree: ast.Module, text: str, line: int, kind: str, ops: Sequence[Op], first: bool
) -> dict[Span, str] | str:
    """The edit that makes the op of this kind in `line` write in place; why there is none."""
    nodes = [
        node
        for node, name in evaluated(tree)
        if name.rstrip("_") == kind and node.lineno <= line <= (node.end_lineno or line)  # type: ignore[attr-defined]
    ]
    if not nodes:
        return _of_layer(tree, kind, ops)
    if len(nodes) > 1:
        return _NO_WORDS
    (node,) = nodes
    if isinstance(node, ast.BinOp):
        two = all(len(set(op.inputs)) == 2 for op in ops)
        return _augmented(tree, text, node, kind, first, two)
    if not isinstance(node, ast.Call) or not first:
        return _NO_WORDS
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    base = ast.get_source_segment(text, node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if base in ("F", "functional", "nn.functional", "torch.nn.functional"):
        return _with_flag(node) if kind in WITH_FLAG else _NO_WORDS
    if has_in_place_form(f"aten.{kind}") and name and not name.endswith("_"):
        # torch.relu(x), x.exp(): the name with an underscore.
        end = (node.func.end_lineno or line, node.func.end_col_offset or 0)
        return {(*end, *end): "_"}
    return _NO_WORDS


def _overlap(one: Span, other: Span) -> bool:
    return (one[:2] < other[2:] and other[:2] < one[2:]) or one[2:] == other[2:]


def _with_flag(call: ast.Call) -> dict[Span, str] | str:
    if any(keyword.arg in ("inplace", None) for keyword in call.keywords):
        return _NO_WORDS
    end = (call.end_lineno or 0, (call.end_col_offset or 1) - 1)
    return {(*end, *end): ", inplace=True" if call.args or call.keywords else "inplace=True"}


def _augmented(
    tree: ast.Module, text: str, node: ast.BinOp, kind: str, first: bool, two: bool
) -> dict[Span, str] | str:
    """`x += y` for a statement `x = x + y`, `x.add_(y)` for any other `x + y`; `two`: both are tensors."""
    statement = next(
        (each for each in ast.walk(tree) if isinstance(each, ast.Assign) and each.value is node), None
    )
    sign = AUGMENTED.get(type(node.op))
    if sign is None:
        return _NO_WORDS
    target = statement.targets[0] if statement and len(statement.targets) == 1 else None
    written = node.left if first else node.right
    other = node.right if first else node.left
    swapped = not first and sign not in ("+", "*")
    same = isinstance(target, ast.Name) and isinstance(written, ast.Name) and target.id == written.id
    value = ast.get_source_segment(text, other) or ""
    if not same and two and isinstance(written, ast.Name) and not swapped:
        return {_span(node): f"{written.id}.{kind}_({value})"}
    if not same or swapped:
        return _NO_WORDS
    assert statement is not None
    assert target is not None
    return {_span(statement): f"{ast.unparse(target)} {sign}= {value}"}


def _span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0


def _of_layer(tree: ast.Module, kind: str, ops: Iterable[Op]) -> dict[Span, str] | str:
    """The flag for the layers that run as these ops, where each is made by an assignment to `self.name`."""
    names = {op.module.rpartition(".")[2] for op in ops}
    edits: dict[Span, str] = {}
    for name in names:
        made = [
            each.value
            for each in ast.walk(tree)
            if isinstance(each, ast.Assign)
            and any(isinstance(t, ast.Attribute) and t.attr == name for t in each.targets)
        ]
        if len(made) != 1 or not isinstance(made[0], ast.Call) or kind not in WITH_FLAG:
            return _LAYER
        called = ast.unparse(made[0].func).rpartition(".")[2]
        found = _with_flag(made[0]) if plain_kind(called.lower()) == kind else _LAYER
        if isinstance(found, str):
            return found
        edits |= found
    return edits or _LAYER


def move_statements(text: str, file: str, graph: Graph) -> Edited:
    """`text` in which the statements of a function run in the order of the ops of `graph` that they make, as
    far as names let them: what a statement reads and writes, in the order of writes. Only plain assignments
    and calls in one block move, whole lines each."""
    tree = parse_python(text)
    place: dict[int, list[int]] = {}
    for position, op in enumerate(graph.ops):
        if op.source is not None and op.source.file == file and op.phase in (None, Phase.FORWARD):
            place.setdefault(op.source.line, []).append(position)
    lines = text.splitlines(keepends=True)
    moved: list[int] = []
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]:
        for block in _blocks(function.body, lines):
            order = _sorted(block, place)
            if order == list(range(len(block))):
                continue
            pieces = [lines[each.lineno - 1 : each.end_lineno] for each in block]
            begin = block[0].lineno - 1
            lines[begin : block[-1].end_lineno] = [line for index in order for line in pieces[index]]
            moved += [block[index].lineno for at, index in enumerate(order) if at != index]
    return Edited("".join(lines), tuple(sorted(moved)))


def _blocks(body: Sequence[ast.stmt], lines: Sequence[str]) -> Iterator[list[ast.stmt]]:
    """Runs of statements that may change places: each on lines of its own, directly one below another."""
    block: list[ast.stmt] = []
    for statement in body:
        plain = isinstance(statement, ast.Assign | ast.AugAssign)
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AugAssign):
            targets = [statement.target]
        names = all(isinstance(each, ast.Name | ast.Tuple) for each in targets)
        indent = lines[statement.lineno - 1][: statement.col_offset]
        alone = indent.isspace() and lines[(statement.end_lineno or 0) - 1].rstrip()[-1:] != "\\"
        follows = not block or (block[-1].end_lineno or 0) + 1 == statement.lineno
        if block and not (plain and names and alone and follows):
            yield block
            block = []
        if plain and names and alone:
            block.append(statement)
    if block:
        yield block


def _sorted(block: Sequence[ast.stmt], place: Mapping[int, list[int]]) -> list[int]:
    """The statements by the place of their last op, each after those that it depends on by names."""
    rank: list[float] = []
    for statement in block:
        spots = [
            spot
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            for spot in place.get(line, ())
        ]
        rank.append(max(spots) if spots else (rank[-1] if rank else -1))
    names = [_names(statement) for statement in block]
    before = [
        {
            early
            for early in range(late)
            if names[early][1] & (names[late][0] | names[late][1]) or names[early][0] & names[late][1]
        }
        for late in range(len(block))
    ]
    order: list[int] = []
    while len(order) < len(block):
        ready = [i for i in range(len(block)) if i not in order and before[i] <= set(order)]
        order.append(min(ready, key=lambda index: (rank[index], index)))
    return order


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """The names that a statement reads, and those that it writes; a method that ends in _ writes what it is
    called on."""
    read: set[str] = set()
    written: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else written).add(node.id)
        elif isinstance(node, ast.Call):
            by_name = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
            if by_name or any(keyword.arg in ("inplace", "out") for keyword in node.keywords):
                written.update(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    return read, written


def _applied(text: str, edits: Mapping[Span, str]) -> str:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for (first, begin, last, end), new in sorted(edits.items(), reverse=True):
        tail = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:begin] + new.encode() + tail]
    return b"".join(lines).decode()


def unified_diff(before: str, after: str, path: str) -> str:
    """The difference as `patch -p1` and `git apply` take it; "" where there is none."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(whole)
