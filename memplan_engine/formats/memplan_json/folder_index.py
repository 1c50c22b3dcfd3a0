"""The index of a folder of recordings: a JSON file that says what the others are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from memplan_engine.errors import InputError
from memplan_engine.formats.read_limits import read_text

Row = TypeVar("Row")


def read_index(
    path: Path, form: tuple[str, int], writer: str, field: str, rows_of: Callable[[Any], list[Row]]
) -> list[Row]:
    """What `rows_of` makes of the index `path`, of the format and version `form`, which the command `writer`
    writes; `field` is the name of its rows.

    Raises
    ------
    InputError: no such index, another one, or none of its rows.
    """
    expected = f"{path.name}, as `{writer}` writes it"
    if not path.is_file():
        raise InputError(str(path.parent), "", f"no {path.name}", f"a folder that `{writer}` wrote")
    try:
        said = json.loads(read_text(path))
        found = (said["format"], said["version"])
        if found != form:
            raise InputError(str(path), "format", " ".join(map(str, found)), " ".join(map(str, form)))
        rows = rows_of(said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(str(path), "", f"{type(error).__name__}: {error}", expected) from None
    if not rows:
        raise InputError(str(path), field, "none", expected)
    return rows
