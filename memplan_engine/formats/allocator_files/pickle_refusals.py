"""What a pickle may not hold: whatever names, calls or makes something is refused by name and place, and so
is plain data that is harmless to hold and deadly to look at."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from memplan_engine.errors import InputError

MAX_NAME = 120
CALLS = {
    0x52: "REDUCE, which calls a function",
    0x62: "BUILD, which sets an object's state",
    0x6F: "OBJ, which makes an object",
    0x81: "NEWOBJ, which makes an object",
    0x92: "NEWOBJ_EX, which makes an object",
    0x82: "EXT1, which names a registered global",
    0x83: "EXT2, which names a registered global",
    0x84: "EXT4, which names a registered global",
    0x51: "BINPERSID, which names an object elsewhere",
    0x50: "PERSID, which names an object elsewhere",
    0x91: "FROZENSET, a frozenset",
    0x96: "BYTEARRAY8, a bytearray",
    0x97: "NEXT_BUFFER, a buffer outside the file",
    0x98: "READONLY_BUFFER, a buffer outside the file",
}
TEXT_CODES = b"ILSVFgp"
"""Instructions of protocols 0 and 1, which have their arguments as text."""
WHOLE = "a pickle that is not damaged"
PLAIN = "plain data: nothing in a file is looked up or called"
MAX_TUPLE_DEPTH = 100
MAX_KEY_ITEMS = 8
MAX_KEY_NUMBER = 1 << 60
"""Beyond, numbers are hashed modulo 2^61 − 1: a file could choose keys that all collide."""
_SCALARS = (str, bytes, bool, float, type(None))


class Refusals:
    """The instructions that are refused; each method is given the place of its instruction in `data`."""

    source: str
    data: bytes
    base: int
    stack: list[Any]

    def error(self, at: int, found: str, expected: str) -> InputError:
        """The error for the instruction at `at`."""
        return InputError(self.source, f"byte {self.base + at:,}", found, expected)

    def cut_short(self, at: int) -> InputError:
        """The error for a file that ends before its pickle does."""
        return self.error(at, "the end of the file", "the rest of the pickle: it was cut short")

    def _call(self, at: int) -> int:
        raise self.error(at, CALLS[self.data[at]], PLAIN)

    def _global(self, at: int) -> int:
        """GLOBAL and INST: two lines, a module and a name in it."""
        lines = self.data[at + 1 : at + 1 + 4 * MAX_NAME].split(b"\n")
        names = [line[:MAX_NAME].decode("utf-8", "replace") for line in lines[:2]]
        raise self.error(at, f"the global {'.'.join(names)}", PLAIN)

    def _stack_global(self, at: int) -> int:
        names = [item[:MAX_NAME] if isinstance(item, str) else brief(item) for item in self.stack[-2:]]
        raise self.error(at, f"the global {'.'.join(names)}", PLAIN)

    def _of_protocol_0(self, at: int) -> int:
        found = f"instruction {chr(self.data[at])!r} of protocol 0"
        raise self.error(at, found, "a pickle of protocol 2 to 5")

    def _unknown(self, at: int) -> int:
        raise self.error(at, f"0x{self.data[at]:02x}, which is not an instruction", WHOLE)


def brief(value: Any) -> str:
    """`value` for a message: what it is, and what it says where it is short and simple."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 64 else f"a number of {value.bit_length():,} bits"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= 40 else f"{value[:39]!r}…"
    return f"a {type(value).__name__}"


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
