"""Statements of the user's own source in another order, and names that are let go of."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memplan_engine.advice.source_edits import Edited, line_end, names_of, source_lines
from memplan_engine.advice.statement_ops import StatementOps
from memplan_engine.graph import Graph
from memplan_engine.system import parse_python


def move_statements(text: str, file: str, graph: Graph) -> Edited:
    """`text` in which the statements of a function run in the order of the ops of `graph` that they make, as
    far as names let them: what a statement reads and writes, in the order of writes. Only plain assignments
    and calls in one block move, whole lines each. An op is a statement's where it stands in it, in a function
    of the file that it calls, or in a layer that it calls by `self`."""
    tree = parse_python(text)
    makers = StatementOps(tree, file, graph)
    lines = source_lines(text)
    moved: list[int] = []
    for function in makers.functions:
        for block in _blocks(function.body, lines):
            order = _sorted(block, [makers.last_op(each, function) for each in block])
            if order == list(range(len(block))):
                continue
            pieces = [lines[each.lineno - 1 : each.end_lineno] for each in block]
            begin = block[0].lineno - 1
            lines[begin : block[-1].end_lineno] = [line for index in order for line in pieces[index]]
            moved += [block[index].lineno for at, index in enumerate(order) if at != index]
    return Edited("".join(lines), tuple(sorted(moved)))


def forget_names(edited: Edited) -> Edited:
    """`edited`, of statements that were moved, with `del` of names in their functions behind the statement
    that is the last to read them: as long as a name is there, eager keeps its tensor. Of names that live
    within one block alone."""
    tree, lines = parse_python(edited.text), source_lines(edited.text)
    end = line_end(edited.text)
    behind: dict[int, str] = {}
    at: list[int] = []
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]:
        inside = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        if not any(line in inside for line in edited.lines):
            continue
        uses = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
        for block in _blocks(function.body, lines):
            for statement, names in _last_reads(block, uses):
                last = statement.end_lineno or statement.lineno
                behind[last] = lines[statement.lineno - 1][: statement.col_offset] + f"del {', '.join(names)}"
                at.append(statement.lineno)
    text = "".join(
        f"{line}{behind[number]}{end}" if number in behind else line for number, line in enumerate(lines, 1)
    )
    return replace(edited, text=text, lines=tuple(sorted({*edited.lines, *at})))


def _last_reads(
    block: Sequence[ast.stmt], uses: Mapping[str, int]
) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """The statements that are the last to read names that a statement of `block` before them makes, and of
    which all `uses` of the function stand in it; with these names."""
    within = Counter(node.id for each in block for node in ast.walk(each) if isinstance(node, ast.Name))
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    for place, statement in enumerate(block):
        for name in names_of(statement)[0]:
            read[name] = place
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    made[node.id] = place
    for place, statement in enumerate(block):
        names = [name for name, last in made.items() if last < place == read.get(name)]
        if mine := tuple(sorted(name for name in names if within[name] == uses[name])):
            yield statement, mine


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


def _sorted(block: Sequence[ast.stmt], last_ops: Sequence[int]) -> list[int]:
    """The statements by the place of their last op, −1 where none is theirs, each after those that it depends
    on by names."""
    rank: list[int] = []
    for last in last_ops:
        rank.append(last if last >= 0 or not rank else rank[-1])
    names = [names_of(statement) for statement in block]
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
