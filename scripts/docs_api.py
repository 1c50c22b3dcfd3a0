"""What MkDocs is told of the API reference: the public names, room by room, as `memplan_engine/__init__.pyi`
has them, and how to read their docstrings."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from griffe import Docstring, Extension

STUB = Path(__file__).resolve().parents[1] / "memplan_engine" / "__init__.pyi"
SECTION = re.compile(r"^(Parameters|Raises)\n-+\n(.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"(?:^|(?<=\. ))(?=\w+(?:, \w+)*: )", re.MULTILINE)
"""Where `name: text` begins: a line, or after another error's sentence on the same one."""


def public_names() -> list[tuple[str, str]]:
    """(module, name) of every public name, in the order of the stub."""
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [(node.module or "", alias.name) for node in imports for alias in node.names]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the public names below the page api.md, a heading for each room."""
    if page.file.src_uri != "api.md":
        return markdown
    parts = [markdown]
    for room, names in groupby(public_names(), lambda pair: pair[0].split(".")[0]):
        parts.append(f"## {room}\n")
        parts += [f"::: memplan_engine.{module}.{name}\n" for module, name in names]
    return "\n".join(parts)


def google_section(section: re.Match[str]) -> str:
    """A section of one of our docstrings in a form that griffe reads, which wants a type on each line."""
    entries = [" ".join(entry.split()) for entry in ENTRY.split(section[2]) if entry.strip()]
    title = "Args" if section[1] == "Parameters" else "Raises"
    return "\n".join([f"{title}:", *(f"    {entry}" for entry in entries)])


class Sections(Extension):  # type: ignore[misc]
    """Griffe's extension that puts the sections of every docstring into that form."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called by griffe for each object that it has read."""
        if isinstance(obj.docstring, Docstring):
            obj.docstring.value = SECTION.sub(google_section, obj.docstring.value)
