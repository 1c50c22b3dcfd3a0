"""Values by name, imported when somebody asks for them: how registries stay light, and how a value is shown
by a room that it does not know."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def find(name: str) -> Any:
    """What `name`, written "package.module:attribute" as entry points are, stands for."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
