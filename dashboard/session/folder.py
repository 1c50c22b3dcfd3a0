"""The files below the folder that the launcher was given, by their paths: everybody's; none outside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

OPTION = "--folder="
"""As the server hands it on."""
KIND = "folder"
"""As keys begin: "folder:runs/step.json"."""
MOST_LISTED = 500
MOST_DEEP = 50
"""Folders within folders: `os.walk` calls itself."""
MOST_LOOKED_AT = 20_000
"""Folders and files: in a larger one what comes later is opened by its path."""


def root() -> Path | None:
    """The folder; None where the launcher was given none."""
    given = [argument.removeprefix(OPTION) for argument in sys.argv[1:] if argument.startswith(OPTION)]
    return Path(given[-1]).resolve() if given else None


def find(key: str) -> Path | None:
    """The file of that key, without links in its path; None where it is none below the folder."""
    kind, _, name = key.partition(":")
    below = root()
    if kind != KIND or below is None:
        return None
    try:
        path = (below / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return path if path.is_relative_to(below) and path.is_file() else None


def listed() -> dict[str, str]:
    """The files that can be opened, key → path below the folder, in order; without what is hidden, and names
    that cannot be shown."""
    below = root()
    if below is None:
        return {}
    names: list[str] = []
    looked_at = 0
    for folder, folders, files in os.walk(below):
        at = Path(folder).relative_to(below)
        folders[:] = sorted(filter(_is_shown, folders)) if len(at.parts) < MOST_DEEP else []
        looked_at += len(folders) + len(files)
        names += [(at / each).as_posix() for each in sorted(filter(_is_shown, files))]
        if looked_at > MOST_LOOKED_AT or len(names) > MOST_LISTED:
            break
    found = {f"{KIND}:{name}": name for name in names[:MOST_LISTED]}
    return {key: name for key, name in found.items() if find(key)}


def _is_shown(name: str) -> bool:
    """Whether it is neither hidden nor has bytes that are no text, or characters that turn text around."""
    return not name.startswith(".") and name.isprintable()
