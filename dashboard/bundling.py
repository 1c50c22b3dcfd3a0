"""Modules of a component's browser side → one script: it is imported from a blob URL, where relative imports
lead nowhere."""

from __future__ import annotations

import re

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


def unlinked(module: str) -> str:
    """The text of a module without its imports, and with its exports as plain declarations."""
    return _EXPORT.sub("", _IMPORT.sub("", module))
