"""Guards against plain data that is harmless to hold and deadly to look at."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from memplan_engine.errors import InputError
from memplan_engine.formats.allocator_files.pickle_refusals import Refusals, brief

MAX_TUPLE_DEPTH = 100
MAX_KEY_ITEMS = 8
MAX_KEY_NUMBER = 1 << 60
"""Beyond, numbers are hashed modulo 2^61 − 1: a file could choose keys that all collide."""
_SCALARS = (str, bytes, bool, float, type(None))


def as_key(key: Any, machine: Refusals, at: int) -> Hashable:
    """`key`, which may be hashed: a scalar, or a short tuple of scalars; raises InputError for all else.

    Hashing a tuple visits everything in it, and what is shared each time.
    """
    kind = type(key)
    if kind in _SCALARS or (kind is int and -MAX_KEY_NUMBER < key < MAX_KEY_NUMBER):
        return key  # type: ignore[no-any-return]
    if kind is tuple and len(key) <= MAX_KEY_ITEMS and not any(type(item) is tuple for item in key):
        for item in key:
            as_key(item, machine, at)
        return key  # type: ignore[no-any-return]
    expected = f"a text, a number below 2^60, or a tuple of at most {MAX_KEY_ITEMS} of them"
    raise machine.error(at, f"{brief(key)} as a key", expected)


def check_tree(value: Any, source: str, most: int) -> None:
    """Raise InputError where `value` contains itself, or is more than `most` values when what is shared is
    counted each time it comes up: O(values held), without recursion."""
    weights: dict[int, int] = {}
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        item, is_done = waiting.pop()
        if id(item) in weights and not is_done:
            if not weights[id(item)]:
                raise InputError(source, "", f"{brief(item)} that contains itself", "plain data")
            continue
        inside = [each for each in _inside(item) if isinstance(each, list | dict | tuple | set)]
        if not is_done:
            weights[id(item)] = 0
            waiting.append((item, True))
            waiting += [(each, False) for each in inside]
            continue
        weight = 1 + len(item if isinstance(item, list | dict | tuple | set) else ())
        weights[id(item)] = weight = weight + sum(weights[id(each)] for each in inside)
        if weight > most:
            found = "values that are shared until they are more"
            raise InputError(source, "", found, f"at most {most:,} values in all")


def _inside(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list | tuple | set) else ()
