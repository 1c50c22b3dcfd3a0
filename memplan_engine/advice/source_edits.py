"""What a rewrite does, done in the user's own source: a file with some calls in place, and the unified diff
of it. Nothing here runs the source; whether the edits do what they should is for who captures it again."""

from __future__ import annotations

import ast
import difflib
import io
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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
_SOME = "the line runs several times, and not each time in place"
_ELSEWHERE = "the op runs in what is called there, not in the line"
_READ_BELOW = "the name is read below as well, where this run did not come"
_CALLED_ELSEWHERE = "the layer is called in another line as well, where this run did not come"
FUNCTIONAL = "torch.nn.functional"
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


def write_in_place(
    text: str, file: str, graph: Graph, over: Mapping[str, str], only: Collection[int] | None = None
) -> Edited:
    """`text`, the source `file` of ops of `graph`, in which calls write over what they read where `over` says
    so, op by op: `F.relu(x, inplace=True)`, `torch.relu_(x)`, `x.exp_()`, `x += y`, `nn.ReLU(inplace=True)`.

    Only where each run of the line is in place and the line tells which part of it the op is; of these edits
    those that begin at the lines `only`, where they are given. Raises SyntaxError for text that is no Python.
    """
    tree, lines = parse_python(text), source_lines(text)
    groups: dict[tuple[int, str], list[Op]] = defaultdict(list)
    codes: dict[int, str] = {}
    for op in graph.ops:
        if op.source is not None and op.source.file == file and op.phase in (None, Phase.FORWARD):
            groups[op.source.line, plain_kind(op.kind)].append(op)
            codes[op.source.line] = op.source.code.strip()
    edits: dict[Span, str] = {}
    left: dict[int, str] = {}
    for (line, kind), ops in groups.items():
        chosen = [op for op in ops if op.name in over]
        # Of another version of the file the graph tells nothing.
        if not chosen or line > len(lines) or lines[line - 1].strip() != codes[line]:
            continue
        if len(chosen) < len(ops):
            left[line] = _SOME
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
    if only is not None:
        edits = {span: new for span, new in edits.items() if span[0] in only}
    edited = _applied(text, edits)
    changed = tuple(sorted({span[0] for span in edits}))
    return Edited(edited, changed, tuple(sorted(left.items())))


def source_lines(text: str) -> list[str]:
    """The lines of a source as Python counts them, with their ends: a form feed ends none."""
    return list(io.StringIO(text, newline=""))


def line_end(text: str) -> str:
    """What ends a line of `text`."""
    return "\r\n" if "\r\n" in text else "\n"


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
        for node, name in _evaluated(tree)
        if name.rstrip("_") == kind and node.lineno <= line <= (node.end_lineno or line)  # type: ignore[attr-defined]
    ]
    if not nodes:
        return _of_layer(tree, text, kind, ops)
    if len(nodes) > 1:
        return _NO_WORDS
    (node,) = nodes
    if isinstance(node, ast.BinOp):
        two = all(len(set(op.inputs)) == 2 for op in ops)
        return _augmented(tree, text, node, kind, first, two)
    if not isinstance(node, ast.Call) or not first:
        return _NO_WORDS
    if node.args and _is_read_below(tree, node, node.args[0]):
        return _READ_BELOW
    if not isinstance(node.func, ast.Attribute):
        return _NO_WORDS
    name, base = node.func.attr, node.func.value
    module = _imported(tree).get(ast.unparse(base).partition(".")[0])
    if module is not None:
        whole = ".".join([module, *ast.unparse(base).split(".")[1:]])
        if whole == FUNCTIONAL:
            return _with_flag(node, text) if kind in WITH_FLAG else _NO_WORDS
        if whole != "torch":
            return _NO_WORDS
    elif _is_read_below(tree, node, base):
        return _READ_BELOW
    elif isinstance(base, ast.Name) and base.id in _objects_of_methods(tree):
        # A method of the user's own.
        return _NO_WORDS
    if has_in_place_form(f"aten.{kind}") and not name.endswith("_"):
        # torch.relu(x), x.exp(): the name with an underscore.
        end = (node.func.end_lineno or line, node.func.end_col_offset or 0)
        return {(*end, *end): "_"}
    return _NO_WORDS


@lru_cache(maxsize=4)
def _imported(tree: ast.Module) -> dict[str, str]:
    """The modules that names of the file stand for; F is what everybody calls torch.nn.functional."""
    found = {"F": FUNCTIONAL, "functional": FUNCTIONAL, "nn": "torch.nn", "torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname: each.name for each in node.names if each.asname}
            found |= {each.name.partition(".")[0]: each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


@lru_cache(maxsize=4)
def _objects_of_methods(tree: ast.Module) -> set[str]:
    """What methods of the file call their object."""
    methods = (each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body)
    return {each.args.args[0].arg for each in methods if isinstance(each, ast.FunctionDef) and each.args.args}


def _is_read_below(tree: ast.Module, node: ast.AST, written: ast.expr) -> bool:
    """Whether the function reads the name `written` behind the statement of `node` before that, or another
    one of the same block, gives it another value: a run that comes there would find what was written over."""
    if not isinstance(written, ast.Name):
        return False
    line: int = node.lineno  # type: ignore[attr-defined]
    for function in _functions(tree):
        if not function.lineno <= line <= (function.end_lineno or 0):
            continue
        for block in blocks_in(function):
            for at, statement in enumerate(block):
                if not statement.lineno <= line <= (statement.end_lineno or 0) or hasattr(statement, "body"):
                    continue
                if any(each is node for each in ast.walk(statement)):
                    end = _next_value(block[at:], written.id)
                    return any(
                        isinstance(each, ast.Name)
                        and each.id == written.id
                        and isinstance(each.ctx, ast.Load | ast.Del)
                        and (statement.end_lineno or 0) < each.lineno <= end
                        for each in ast.walk(function)
                    )
    return False


@lru_cache(maxsize=4)
def _evaluated(tree: ast.Module) -> tuple[tuple[ast.AST, str], ...]:
    return tuple(evaluated(tree))


@lru_cache(maxsize=4)
def _functions(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    nodes = ast.walk(tree)
    return tuple(each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def blocks_in(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements below `node`, each a block."""
    for each in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(each, field, None)
            if isinstance(block, list):
                yield block


def _next_value(block: Sequence[ast.stmt], name: str) -> float:
    """The last line of the first statement of `block` that gives `name` another value."""
    for statement in block:
        if isinstance(statement, ast.Assign) and name in names_of(statement)[1]:
            return statement.end_lineno or statement.lineno
    return float("inf")


def _overlap(one: Span, other: Span) -> bool:
    return (one[:2] < other[2:] and other[:2] < one[2:]) or one[2:] == other[2:]


def _with_flag(call: ast.Call, text: str) -> dict[Span, str] | str:
    if any(keyword.arg in ("inplace", None) for keyword in call.keywords):
        return _NO_WORDS
    end = (call.end_lineno or 0, (call.end_col_offset or 1) - 1)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not given:
        return {(*end, *end): "inplace=True"}
    last = max(((each.end_lineno or 0, each.end_col_offset or 0) for each in given), default=end)
    between = _between(text, last, end)
    if not between.strip() or between.strip() == ",":
        # Behind the last argument: a comma may follow it, and the bracket stand on a line of its own.
        return {(*last, *last): ", inplace=True"}
    if "#" in between or between.rstrip().endswith(","):
        return _NO_WORDS
    return {(*end, *end): ", inplace=True"}


def _between(text: str, begin: tuple[int, int], end: tuple[int, int]) -> str:
    """`text` from one place to another: lines from 1 on, and bytes."""
    lines = [line.encode() for line in source_lines(text)[begin[0] - 1 : end[0]]]
    lines[-1] = lines[-1][: end[1]]
    lines[0] = lines[0][begin[1] :]
    return b"".join(lines).decode()


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
    if not same and isinstance(written, ast.Name) and _is_read_below(tree, node, written):
        return _READ_BELOW
    if not same and two and isinstance(written, ast.Name) and not swapped:
        return {_span(node): f"{written.id}.{kind}_({value})"}
    if not same or swapped:
        return _NO_WORDS
    assert statement is not None
    assert target is not None
    # Brackets around an operand are not part of it.
    value = f"({value})" if "\n" in value else value
    return {_span(statement): f"{ast.unparse(target)} {sign}= {value}"}


def _span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0


def _of_layer(tree: ast.Module, text: str, kind: str, ops: Iterable[Op]) -> dict[Span, str] | str:
    """The flag for the layers that run as these ops, where each is made by an assignment to `self.name`, and
    called only where these ops stand."""
    names = {op.module.rpartition(".")[2] for op in ops}
    lines = {op.source.line for op in ops if op.source is not None}
    edits: dict[Span, str] = {}
    for name in names:
        made = [
            each.value
            for each in ast.walk(tree)
            if isinstance(each, ast.Assign)
            and any(isinstance(t, ast.Attribute) and t.attr == name for t in each.targets)
        ]
        calls = [
            each
            for each in ast.walk(tree)
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == name
        ]
        if not name or not calls:
            return _ELSEWHERE
        if len(made) != 1 or not isinstance(made[0], ast.Call) or kind not in WITH_FLAG:
            return _LAYER
        if not all(lines & set(range(each.lineno, (each.end_lineno or 0) + 1)) for each in calls):
            return _CALLED_ELSEWHERE
        if any(each.args and _is_read_below(tree, each, each.args[0]) for each in calls):
            return _READ_BELOW
        called = ast.unparse(made[0].func).rpartition(".")[2]
        found = _with_flag(made[0], text) if plain_kind(called.lower()) == kind else _LAYER
        if isinstance(found, str):
            return found
        edits |= found
    return edits or _ELSEWHERE


def names_of(statement: ast.stmt) -> tuple[set[str], set[str]]:
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
    lines = [line.encode() for line in source_lines(text)]
    for (first, begin, last, end), new in sorted(edits.items(), reverse=True):
        tail = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:begin] + new.encode() + tail]
    return b"".join(lines).decode()


def unified_diff(before: str, after: str, path: str) -> str:
    """The difference as `patch -p1` and `git apply` take it; "" where there is none."""
    # GNU patch takes a name with a space in it up to a tab.
    tab = "\t" if " " in path else ""
    lines = difflib.unified_diff(
        source_lines(before), source_lines(after), f"a/{path}{tab}", f"b/{path}{tab}"
    )
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(whole)
