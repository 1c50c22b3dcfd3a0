"""The files of the user's own from which a model or a run is made: what has to stay for a result to hold."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from memplan_engine.system import parse_python

SETTINGS = ("TORCH", "PYTORCH", "CUDA_")
"""How variables of the environment begin that torch asks for."""


def torch_settings() -> list[tuple[str, str]]:
    """The variables of the environment that torch asks for, in the order of their names."""
    return sorted(item for item in os.environ.items() if item[0].startswith(SETTINGS))


def local_sources(script: Path, *others: Path) -> list[Path]:
    """The Python file `script` and the files that it imports, or those that they import, in order: below its
    folder, or below `others`, folders that Python looks into as well."""
    roots = [script.resolve().parent, *(each.resolve() for each in others)]
    found: dict[Path, None] = {}
    left = [script.resolve()]
    while left:
        path = left.pop()
        if path in found:
            continue
        found[path] = None
        try:
            tree = parse_python(path.read_bytes())
        except (SyntaxError, ValueError):
            # It is said when it runs.
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [(root, alias.name) for alias in node.names for root in roots]
            elif isinstance(node, ast.ImportFrom):
                bases = [path.parents[node.level - 1]] if node.level else roots
                module = node.module or ""
                names = [
                    (base, f"{module}.{alias.name}".strip(".")) for alias in node.names for base in bases
                ]
            else:
                continue
            left += [each for base, name in names for each in _files(base, name)]
    return sorted(found)


def _files(base: Path, name: str) -> Iterator[Path]:
    """Those that an import of `name` below `base` runs."""
    at = base
    for part in name.split("."):
        at /= part
        for path in (at.with_suffix(".py"), at / "__init__.py"):
            if path.is_file():
                yield path
