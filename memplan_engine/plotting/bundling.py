"""Modules of a browser side → one script, for pages that can import none: a report is one file, and Streamlit
runs a component from a blob URL, where relative imports lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

SHARED = Path(__file__).parent / "frontend"
"""What reports and pages share: numbers as words, ticks, contrast, packed columns."""

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


def bundle(paths: Iterable[Path]) -> str:
    """The modules in one scope, in this order: none may run code that needs a later one."""
    return "\n".join(unlinked(path.read_text("utf-8")) for path in paths)


def unlinked(module: str) -> str:
    """The text of a module without its imports, and with its exports as plain declarations."""
    return _EXPORT.sub("", _IMPORT.sub("", module))
