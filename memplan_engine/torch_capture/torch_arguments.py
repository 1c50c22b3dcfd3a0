"""The plain arguments of an operator that say along which dimensions it works, and how it sums up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from memplan_engine.graph import Arguments

_NAMES = """
dim dim0 dim1 dims keepdim reduction ignore_index normalized_shape start end step index training
is_causal dropout_p scale_grad_by_freq
"""
_KEPT = frozenset(_NAMES.split())
"""By their names in schemas. Sizes are left out, for shapes say them."""


def plain_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments of `target` that `Op.arguments` keeps, defaults included: numbers and flags as one whole
    number, lists of them as several. A value that is no whole number, or is not known before the run, is
    left out."""
    kept = []
    for at, name, default in _places(target):
        value = args[at] if at < len(args) else kwargs.get(name, default)
        numbers = _whole(value)
        if numbers is not None:
            kept.append((name, numbers))
    return tuple(kept)


def _whole(value: Any) -> tuple[int, ...] | None:
    items = value if isinstance(value, (list, tuple)) else (value,)
    if all(isinstance(item, (bool, int)) or (isinstance(item, float) and item == 0.0) for item in items):
        return tuple(int(item) for item in items)
    return None


@lru_cache(maxsize=4096)
def _places(target: Any) -> tuple[tuple[int, str, Any], ...]:
    """Of each argument that is kept its place, its name and its default."""
    schema = getattr(target, "_schema", None)
    arguments = () if schema is None else schema.arguments
    return tuple(
        (at, each.name, each.default_value) for at, each in enumerate(arguments) if each.name in _KEPT
    )
