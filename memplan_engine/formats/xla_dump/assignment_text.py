"""XLA's `*-buffer-assignment.txt`."""

from __future__ import annotations

import re

from memplan_engine.errors import InputError
from memplan_engine.formats.xla_dump.hlo_module import DTYPES, MOST_INSTRUCTIONS, Allocation, Index, Value
from memplan_engine.formats.xla_dump.hlo_text import lines_of

BEGIN = "BufferAssignment:"
_NUMBER = r"(\d{1,19})"
_ALLOCATION = re.compile(rf"allocation {_NUMBER}: size {_NUMBER}(.*):$")
_VALUE = re.compile(
    rf"\s*value: <\d+ ([^\s{{}}]+)(?:\{{([\d,]{{0,999}})\}})?(?: \(phi\))? @\d+> "
    rf"\(size={_NUMBER},offset={_NUMBER}\):? ?(.*)$"
)
_COLOR = re.compile(r", color (\d{1,9})\b")
_ARRAY = re.compile(r"(\w+)\[([<=\d,]*)\]")


def read_assignment(text: str, source: str) -> tuple[Allocation, ...]:
    """The allocations that `text` lists.

    Raises
    ------
    InputError: no allocation at all, a value before the first, a line that cannot be read, too many values.
    """
    allocations: list[Allocation] = []
    left = MOST_INSTRUCTIONS
    for number, line in enumerate(lines_of(text), 1):
        words = line.lstrip()
        if words.startswith("allocation "):
            found = _ALLOCATION.match(words)
            if found is None:
                raise _unreadable(source, number, line, "allocation N: size BYTES, …:")
            allocations.append(_allocation(found))
        elif words.startswith("value: "):
            value = _VALUE.match(words)
            left -= 1
            if value is None or not allocations or left < 0:
                raise _unreadable(source, number, line, "value: <N name @N> (size=N,offset=N): shape")
            allocations[-1].values.append(_value(value))
    if not allocations:
        raise InputError(source, "", "no allocation", f"{BEGIN} and its allocations")
    return tuple(allocations)


def _unreadable(source: str, number: int, line: str, expected: str) -> InputError:
    return InputError(source, f"line {number} of the assignment", repr(line[:80]), expected)


def _allocation(found: re.Match[str]) -> Allocation:
    # Shapes stand between bars, and may hold any word.
    kind = re.sub(r"\|[^|]*\|", "", found[3])
    color = _COLOR.search(kind)
    return Allocation(
        int(found[1]),
        int(found[2]),
        int(color[1]) if color else 0,
        is_parameter=", parameter " in kind,
        is_constant=", constant" in kind,
        is_thread_local=", thread-local" in kind,
        is_live_out=", maybe-live-out" in kind,
    )


def _value(found: re.Match[str]) -> Value:
    index: Index = tuple(int(part) for part in (found[2] or "").split(",") if part)
    size = int(found[3])
    shape, dtype = array_of(found[5], size)
    return Value(found[1], index, int(found[4]), size, shape, dtype)


def array_of(shape: str, size: int) -> tuple[tuple[int, ...], str]:
    """Dimensions and element type of an array; of anything else its bytes: a tuple is a table of pointers."""
    array = _ARRAY.match(shape)
    if array is None or len(array[2]) > 1000:
        return (size,), "uint8"
    sizes = tuple(int(part.lstrip("<=")[:18] or 0) for part in array[2].split(",") if part)
    return sizes, DTYPES.get(array[1], array[1])
