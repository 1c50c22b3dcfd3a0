"""A compiled module of XLA and its buffer assignment, as far as memory goes: what both kinds of dumps are
read into (openxla.org/xla, xla/service/hlo.proto and buffer_assignment.h)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from memplan_engine.errors import InputError
from memplan_engine.graph import MAX_BYTES, Source

Index = tuple[int, ...]
"""A place in nested tuples: () is the tuple itself, (1, 0) the first part of its second part."""

MOST_DEEP = 50
"""Tuples, or computations, within each other: those that JAX and TensorFlow make stay below 10."""
MOST_INSTRUCTIONS = 500_000
"""Of a module, those inside fusions too, and values of its assignment: 10 CPU seconds to read."""
DTYPES = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "bf16": "bfloat16", "f16": "float16",
    "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
"""XLA's names of element types, and ours; others keep XLA's."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`operands` are instructions of the same computation. `called` are computations: of a while loop its
    body and its condition, of a conditional its branches. `number` is that of a parameter, or the part that a
    get-tuple-element takes. `scope` is the path of names that the program gives, "jit(f)/while/body/add"."""

    name: str
    opcode: str
    operands: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    number: int = 0
    scope: str = ""
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Computation:
    """Its instructions in the order of the schedule, and the name of the one whose value it returns."""

    instructions: tuple[Instruction, ...]
    root: str


@dataclass(frozen=True, slots=True)
class Module:
    """All computations by name; `entry` is the one that runs."""

    name: str
    computations: dict[str, Computation]
    entry: str


@dataclass(frozen=True, slots=True)
class Value:
    """What the instruction `maker` defines at `index`: `size` bytes, `offset` bytes into its allocation."""

    maker: str
    index: Index
    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        """As XLA writes it: "while.9{1}"."""
        return f"{self.maker}{{{','.join(map(str, self.index))}}}" if self.index else self.maker


@dataclass(slots=True)
class Allocation:
    """Bytes that values use in turn. `color` is the memory in which they are, 0 the device's own."""

    number: int
    size: int
    color: int = 0
    is_parameter: bool = False
    is_constant: bool = False
    is_thread_local: bool = False
    is_live_out: bool = False
    values: list[Value] = field(default_factory=list)

    @property
    def is_temporary(self) -> bool:
        """Whether it is XLA's own, and not the caller's, in the memory that counts: what JAX's
        `temp_size_in_bytes` sums up."""
        return not (
            self.color or self.is_parameter or self.is_constant or self.is_thread_local or self.is_live_out
        )


@dataclass(frozen=True, slots=True)
class Dump:
    """A module and where its values live."""

    module: Module
    allocations: tuple[Allocation, ...]

    def values(self) -> Iterator[tuple[Allocation, Value]]:
        """All values, each with its allocation."""
        return ((allocation, value) for allocation in self.allocations for value in allocation.values)


def check_dump(dump: Dump, source: str) -> Dump:
    """Return `dump` if its assignment is one of its module, within 0 … 2^63 − 1 bytes; raise InputError."""
    module = dump.module
    if module.entry not in module.computations:
        raise InputError(source, "", "no entry computation", "a whole module")
    makers = {each.name for one in module.computations.values() for each in one.instructions}
    for allocation, value in dump.values():
        place = f"allocation {allocation.number}, value {value.name!r}"
        if value.maker not in makers:
            expected = "an instruction of the HLO: both files of one compilation"
            raise InputError(source, place, f"the instruction {value.maker!r}", expected)
        if not 0 <= value.offset <= value.offset + value.size <= allocation.size <= MAX_BYTES:
            found = f"{value.size} bytes at {value.offset}"
            raise InputError(source, place, found, f"a place within its {allocation.size} bytes")
        if len(value.index) > MOST_DEEP:
            raise InputError(source, place, f"tuples {len(value.index)} deep", f"at most {MOST_DEEP}")
    return dump
