"""Modules of a browser side → one script, for pages that can import none: a report is one file, and Streamlit
runs a component from a blob URL, where relative imports lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

SHARED = Path(__file__).parent / "frontend"
CHART_MODULES = tuple(
    SHARED / f"{name}.js"
    for name in (
        *("format", "ticks", "contrast", "columns"),
        *("strokes", "fitting", "viewport", "axes", "levels", "strip", "bands"),
    )
)
"""What reports, pages and replays share: numbers as words, ticks and contrast; scales, axes, the strip."""

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_CONSTANT = re.compile(r"^const ([A-Z][A-Z_]*) =", re.MULTILINE)


def bundle(paths: Iterable[Path]) -> str:
    """The modules in one scope, in this order: none may run code that needs a later one. Constants that a
    module keeps to itself get its name."""
    return "\n".join(map(_unlinked, paths))


def _unlinked(path: Path) -> str:
    """The text of a module without its imports, and with its exports as plain declarations."""
    text = path.read_text("utf-8")
    # Before the exports are gone: those have one name everywhere.
    for name in _CONSTANT.findall(text):
        # Not what is read of an object, `one.NAME`, but what is spread, `...NAME`.
        text = re.sub(rf"(?<!\w)(?<!(?<!\.\.)\.){name}\b(?!:)", f"{path.stem}_{name}", text)
    return _EXPORT.sub("", _IMPORT.sub("", text))
