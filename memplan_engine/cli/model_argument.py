"""What the argument MODEL of a verb names: a factory, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError


def is_factory(model: str, step: dict[str, Any] | None) -> bool:
    """Whether `model` is "package.module:factory" or "file.py:factory", and not the name of a file.

    Raises
    ------
    InputError: a Python file without the name of a factory; a training step, `step`, of a file.
    """
    path = Path(model)
    if not path.is_file() and (":" in model or not path.suffix):
        return True
    if path.suffix == ".py":
        expected = f"{model}:factory, the function in it that makes the model and its inputs"
        raise InputError(path.name, "", "a Python file without the name of a factory", expected)
    if step is not None:
        raise InputError("--training", "", "a file", "a factory: its model can be trained")
    return False
