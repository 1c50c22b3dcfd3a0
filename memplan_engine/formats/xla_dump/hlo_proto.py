"""HloProto, as `--xla_dump_hlo_as_proto` writes it: a module with its schedule and its buffer assignment.
Only the fields that tell of memory (openxla.org/xla, xla/service/hlo.proto, xla_data.proto) are looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from memplan_engine.errors import InputError
from memplan_engine.formats.xla_dump.hlo_module import (
    MOST_INSTRUCTIONS,
    Allocation,
    Computation,
    Dump,
    Instruction,
    Module,
    Value,
    check_dump,
)
from memplan_engine.formats.xla_dump.hlo_text import CALLING
from memplan_engine.graph import Source

MOST_BYTES = 256 * 2**20
"""Constants of a model are in it."""
MOST_FIELDS = 4_000_000
"""Of all messages that are looked into: 10 CPU seconds, and 1.5 GB when all hold numbers."""
MODULE, ASSIGNMENT = 1, 3
"""The fields of HloProto."""
_TYPES = (
    "invalid", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "uint8", "uint8", "complex64", "bfloat16", "uint8", "complex128",
)  # fmt: skip
"""Names of PrimitiveType from 0 on; tuples, opaque values and tokens (13, 14, 17) are bytes."""
Fields = dict[int, list[int | bytes]]


class _Wire:
    """Messages of protocol buffers, so many fields of them in all and no more."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._left = MOST_FIELDS

    def fields(self, data: bytes) -> Fields:
        """What stands in a message by field number: numbers and bytes; raises InputError."""
        found: Fields = defaultdict(list)
        at = 0
        while at < len(data):
            self._count()
            tag, at = self._varint(data, at)
            kind = tag & 7
            if kind == 0:
                value, at = self._varint(data, at)
                found[tag >> 3].append(value)
                continue
            length = {1: 8, 5: 4}.get(kind, -1)
            if kind == 2:
                length, at = self._varint(data, at)
            if length < 0 or at + length > len(data):
                raise InputError(self.source, "", "a truncated or damaged message", "a whole HloProto")
            if kind == 2:
                found[tag >> 3].append(data[at : at + length])
            at += length
        return found

    def inner(self, fields: Fields, number: int) -> Iterator[Fields]:
        """The messages of a repeated field."""
        return (self.fields(_bytes(each)) for each in fields.get(number, ()))

    def numbers(self, fields: Fields, number: int) -> list[int]:
        """A list of numbers, packed or one by one."""
        found: list[int] = []
        for each in fields.get(number, ()):
            if isinstance(each, int):
                found.append(each)
                continue
            at = 0
            while at < len(each):
                self._count()
                value, at = self._varint(each, at)
                found.append(value)
        return found

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InputError(self.source, "", f"more than {MOST_FIELDS:,} fields", "a smaller module")

    def _varint(self, data: bytes, at: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= len(data):
                break
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise InputError(self.source, "", "a number without an end", "a whole HloProto")


def read_proto(data: bytes, source: str) -> Dump:
    """The dump that `data`, an HloProto, holds.

    Raises
    ------
    InputError: what is damaged or no HloProto, has no schedule or no buffer assignment, or too many fields.
    """
    top = _Wire(source).fields(data)
    if not top.get(ASSIGNMENT):
        found = "no buffer assignment in it"
        expected = "an HloProto of --xla_dump_hlo_as_proto, *_after_optimizations.hlo.pb"
        raise InputError(source, "", found, expected)
    return read_parts(_bytes(_last(top, MODULE, b"")), _bytes(_last(top, ASSIGNMENT, b"")), source)


def read_parts(module: bytes, assignment: bytes, source: str) -> Dump:
    """As `read_proto`, of an HloModuleProto and its BufferAssignmentProto."""
    wire = _Wire(source)
    made, named = _module(wire, wire.fields(module))
    return check_dump(Dump(made, _assignment(wire, wire.fields(assignment), named)), source)


def _module(wire: _Wire, fields: Fields) -> tuple[Module, dict[int, _Named]]:
    """The module, and by number its instructions."""
    orders: dict[int, list[int]] = {}
    for schedule in wire.inner(fields, 7):
        for entry in wire.inner(schedule, 1):
            for sequence in wire.inner(entry, 2):
                orders[_int(entry, 1)] = wire.numbers(sequence, 1)
    if not orders:
        expected = "the dump after optimizations, *_after_optimizations.hlo.pb"
        raise InputError(wire.source, "", "a module without a schedule", expected)
    stacks = _Stacks(wire, fields)
    raw = list(wire.inner(fields, 3))
    called = {_int(each, 5): _text(each, 1) for each in raw}
    named: dict[int, _Named] = {}
    computations: dict[str, Computation] = {}
    for each in raw:
        inside = {_int(one, 35): one for one in wire.inner(each, 2)}
        if len(named) + len(inside) > MOST_INSTRUCTIONS:
            found = f"more than {MOST_INSTRUCTIONS:,} instructions"
            raise InputError(wire.source, "", found, "a smaller module")
        names = {number: _text(one, 1) for number, one in inside.items()}
        for number, one in inside.items():
            named[number] = names[number], next(wire.inner(one, 3), {})
        order = orders.get(_int(each, 5), list(inside))
        instructions = tuple(
            _instruction(wire, inside[number], names, called, stacks) for number in order if number in inside
        )
        computations[_text(each, 1)] = Computation(instructions, names.get(_int(each, 6), ""))
    return Module(_text(fields, 1), computations, called.get(_int(fields, 6), _text(fields, 2))), named


_Named = tuple[str, Fields]
"""The name of an instruction, and its shape."""


def _instruction(
    wire: _Wire, fields: Fields, names: dict[int, str], called: dict[int, str], stacks: _Stacks
) -> Instruction:
    opcode = _text(fields, 2)
    metadata = next(wire.inner(fields, 7), {})
    return Instruction(
        _text(fields, 1),
        opcode,
        tuple(names[number] for number in wire.numbers(fields, 36) if number in names),
        tuple(called.get(number, "") for number in wire.numbers(fields, 38)) if opcode in CALLING else (),
        _int(fields, 13 if opcode == "get-tuple-element" else 9),
        _text(metadata, 2),
        stacks.place(metadata),
    )


class _Stacks:
    """The source lines of a module, which instructions name by number."""

    def __init__(self, wire: _Wire, fields: Fields) -> None:
        index = next(wire.inner(fields, 17), {})
        self._files = [_bytes(each).decode("utf-8", "replace") for each in index.get(1, ())]
        self._lines = [(_int(each, 1), _int(each, 3)) for each in wire.inner(index, 3)]
        self._frames = [_int(each, 1) for each in wire.inner(index, 4)]

    def place(self, metadata: Fields) -> Source | None:
        """The line that the metadata of an instruction tells, itself or by the number of a frame."""
        if metadata.get(3):
            return Source(_text(metadata, 3), _int(metadata, 4))
        frame = _int(metadata, 15)
        location = self._frames[frame - 1] if 0 < frame <= len(self._frames) else 0
        file, line = self._lines[location - 1] if 0 < location <= len(self._lines) else (0, 0)
        return Source(self._files[file - 1], line) if 0 < file <= len(self._files) else None


def _assignment(wire: _Wire, fields: Fields, named: dict[int, _Named]) -> tuple[Allocation, ...]:
    makers: dict[int, tuple[str, tuple[int, ...], tuple[int, ...], str]] = {}
    by_name = dict(named.values())
    for buffer in wire.inner(fields, 1):
        place = next(wire.inner(buffer, 3), {})
        # Dumps before 2022 name the instruction, later ones number it.
        name = _text(place, 2) or named.get(_int(place, 4), ("", {}))[0]
        index = tuple(wire.numbers(place, 3))
        makers[_int(buffer, 1)] = name, index, *_array(wire, by_name.get(name, {}), index, _int(buffer, 2))
    allocations = []
    for each in wire.inner(fields, 3):
        made = Allocation(
            _int(each, 1),
            _int(each, 2),
            _int(each, 8),
            is_parameter=bool(_int(each, 5)),
            is_constant=bool(_int(each, 12)),
            is_thread_local=bool(_int(each, 3)),
            is_live_out=bool(_int(each, 7)),
        )
        for part in wire.inner(each, 9):
            name, index, shape, dtype = makers.get(_int(part, 1), ("", (), (), ""))
            made.values.append(Value(name, index, _int(part, 2), _int(part, 3), shape, dtype))
        allocations.append(made)
    return tuple(allocations)


def _array(wire: _Wire, shape: Fields, index: tuple[int, ...], size: int) -> tuple[tuple[int, ...], str]:
    """Dimensions and element type at `index` of a shape; of anything but an array its bytes."""
    for part in index:
        parts = shape.get(4, [])
        shape = wire.fields(_bytes(parts[part])) if part < len(parts) else {}
    kind = _int(shape, 2)
    if not 0 < kind < len(_TYPES) or kind in (13, 14, 17):
        return (size,), "uint8" if kind < len(_TYPES) else f"type {kind}"
    return tuple(wire.numbers(shape, 3)), _TYPES[kind]


def _last(fields: Fields, number: int, default: int | bytes) -> int | bytes:
    found = fields.get(number)
    return found[-1] if found else default


def _bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _int(fields: Fields, number: int) -> int:
    value = _last(fields, number, 0)
    return value if isinstance(value, int) else 0


def _text(fields: Fields, number: int) -> str:
    return _bytes(_last(fields, number, b"")).decode("utf-8", "replace")
