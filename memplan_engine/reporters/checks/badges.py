"""Badges: the JSON that shields.io's endpoint badge reads, a file a model."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memplan_engine.checks.ceilings import NO_CEILINGS
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.errors import InputError
from memplan_engine.system import write_atomically
from memplan_engine.units import format_bytes

MOST_LETTERS = 60


def badge(label: str, nbytes: int, passed: bool | None) -> dict[str, Any]:
    """The badge of a series called `label`; `passed` is None where nothing was asked of it, which is blue:
    green is for what holds."""
    color = {None: "blue", True: "brightgreen", False: "red"}[passed]
    return {
        "schemaVersion": 1,
        "label": label[:MOST_LETTERS],
        "message": format_bytes(nbytes),
        "color": color,
    }


def badge_of(checked: ModelCheck) -> dict[str, Any]:
    """The badge of a model: its arena."""
    asked = checked.ceilings != NO_CEILINGS or (checked.limit is not None and checked.base is not None)
    return badge(f"{checked.name} arena", checked.figures.arena, checked.passed if asked else None)


def badge_file(name: str) -> str:
    """What the file of the model `name` is called: "shop.models-decoder.json". A name with other letters than
    a path or a factory has ends in a digest."""
    slug = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.")[:MOST_LETTERS]
    plain = name.replace(":", "-").replace("/", "-")
    digest = "" if slug == plain else f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{slug}{digest}.json"


def check_folder(folder: Path) -> None:
    """Raise InputError, before long work, where `folder` cannot be made, or takes no files."""
    place = folder.resolve()
    there = next(each for each in (place, *place.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise InputError(
            str(folder), "", f"{there}, which is no folder", "a folder, or where one can be made"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(str(folder), "", f"{there}, which may not be written", "a folder that takes files")


def write_badges(checks: Sequence[ModelCheck], folder: Path) -> None:
    """Write the badge of each model into `folder`, which is made; raises InputError for one that takes no
    files."""
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), "", error.strerror or str(error), "a folder that can be made") from None
    for each in checks:
        text = json.dumps(badge_of(each), ensure_ascii=False) + "\n"
        write_atomically(folder / badge_file(each.name), text.encode("utf-8", "backslashreplace"))
