"""Which ops of a graph the statements of a source file make."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from memplan_engine.graph import Graph, Phase


class StatementOps:
    """The forward ops of `graph` by what makes them in `tree`, the source `file`: lines, functions of the
    file, and layers. A graph has the innermost line of an op alone, so calls are followed by their names."""

    def __init__(self, tree: ast.Module, file: str, graph: Graph) -> None:
        self.functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
        self._named: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        for function in self.functions:
            self._named[function.name].append(function)
        self._in_line: dict[int, int] = {}
        self._in_layer: dict[str, int] = {}
        for position, op in enumerate(graph.ops):
            if op.phase not in (None, Phase.FORWARD):
                continue
            if op.source is not None and op.source.file == file:
                self._in_line[op.source.line] = position
            for path in _enclosing(op.module):
                self._in_layer[path] = position

    def last_op(self, statement: ast.stmt, function: ast.FunctionDef) -> int:
        """The place in the graph of the last op that `statement` of `function` makes; −1 where none is known
        to be its own. What functions make counts where nothing else tells: others may call them, too."""
        own = function.args.args[0].arg if function.args.args else ""
        layers = [path for name in _layers(statement, own) for path in self._paths(name, function, own)]
        told = max([self._in_lines(statement), *(self._in_layer[path] for path in layers)])
        return told if told >= 0 else self._in_functions(statement, {function.name})

    def _in_lines(self, code: ast.stmt) -> int:
        lines = range(code.lineno, (code.end_lineno or code.lineno) + 1)
        return max(self._in_line.get(line, -1) for line in lines)

    def _in_functions(self, code: ast.stmt, entered: set[str]) -> int:
        """Of the functions of the file that `code` calls, but for those `entered` already, and of theirs."""
        last = -1
        for name in _called(code) - entered:
            for function in self._named.get(name, ()):
                last = max(last, self._in_lines(function), self._in_functions(function, {*entered, name}))
        return last

    def _paths(self, layer: str, function: ast.FunctionDef, own: str) -> Iterator[str]:
        """The paths that `layer` of the object `own` has: those beside which all other layers lie that the
        function calls."""
        names = {each for each in _layers(function, own) if any(_ends(path, each) for path in self._in_layer)}
        for path in self._in_layer:
            if _ends(path, layer):
                home = path.removesuffix(layer)
                if all(home + name in self._in_layer for name in names):
                    yield path


def _enclosing(path: str) -> Iterator[str]:
    """`path` and the paths of the modules around it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _ends(path: str, name: str) -> bool:
    return path == name or path.endswith(f".{name}")


def _called(code: ast.AST) -> set[str]:
    """The names of the functions and methods that are called in `code`."""
    calls = [node.func for node in ast.walk(code) if isinstance(node, ast.Call)]
    return {
        func.id if isinstance(func, ast.Name) else func.attr
        for func in calls
        if isinstance(func, ast.Name | ast.Attribute)
    }


def _layers(code: ast.AST, own: str) -> Iterator[str]:
    """What is called of the object `own` in `code`: "conv" for `self.conv(x)`, "blocks.0" for
    `self.blocks[0](x)`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call):
            func, index = node.func, ""
            if isinstance(func, ast.Subscript):
                if isinstance(func.slice, ast.Constant):
                    index = f".{func.slice.value!r}"
                func = func.value
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == own:
                yield func.attr + index
