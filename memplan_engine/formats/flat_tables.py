"""FlatBuffers, as far as models need them: tables and vectors in the bytes of a stranger, every place
checked before it is read (https://flatbuffers.dev/internals)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memplan_engine.errors import InputError
from memplan_engine.problem import Ints


@dataclass(frozen=True, slots=True)
class FlatFile:
    """The bytes of a file called `name`."""

    data: bytes
    name: str

    def number(self, form: str, at: int) -> int:
        """The number of struct's format `form` at the byte `at`; raises InputError outside of the file."""
        if not 0 <= at <= len(self.data) - struct.calcsize(form):
            found = f"a place at byte {at} of {len(self.data)}"
            raise InputError(
                self.name, "", found, "a model whose parts lie in the file: it is damaged or cut"
            )
        return int(struct.unpack_from(f"<{form}", self.data, at)[0])

    def root(self) -> Table:
        """The table that the file begins with."""
        return Table(self, self.number("I", 0))

    def target(self, at: int) -> int:
        """Where the offset that stands at `at` leads to."""
        return at + self.number("I", at)


@dataclass(frozen=True, slots=True)
class Table:
    """A table at the byte `at` of `file`. Fields are counted from 0, as a schema lists them; one that is not
    there has its default."""

    file: FlatFile
    at: int

    def place(self, field: int) -> int:
        """The byte at which a field stands, 0 for one that is not there."""
        layout = self.at - self.file.number("i", self.at)
        entry = 4 + 2 * field
        if entry + 2 > self.file.number("H", layout):
            return 0
        offset = self.file.number("H", layout + entry)
        return self.at + offset if offset else 0

    def number(self, field: int, form: str, default: int = 0) -> int:
        """A number of struct's format `form`."""
        place = self.place(field)
        return self.file.number(form, place) if place else default

    def table(self, field: int) -> Table | None:
        """A table within this one."""
        place = self.place(field)
        return Table(self.file, self.file.target(place)) if place else None

    def vector(self, field: int, width: int) -> tuple[int, int]:
        """Where the entries of a vector begin, `width` bytes each, and how many there are; (0, 0) for none.

        Raises
        ------
        InputError: more than the file holds.
        """
        place = self.place(field)
        if not place:
            return 0, 0
        start = self.file.target(place)
        count = self.file.number("I", start)
        if start + 4 + count * width > len(self.file.data):
            found = f"a list of {count} entries at byte {start}"
            raise InputError(self.file.name, "", found, f"one that ends within {len(self.file.data)} bytes")
        return start + 4, count

    def tables(self, field: int) -> list[Table]:
        """The tables of a vector."""
        start, count = self.vector(field, 4)
        return [Table(self.file, self.file.target(at)) for at in _places(start, count)]

    def integers(self, field: int) -> Ints:
        """(count,) the entries of a vector of 32 bits each."""
        start, count = self.vector(field, 4)
        return np.frombuffer(self.file.data, "<i4", count, start).astype(np.int64)

    def content(self, field: int) -> bytes:
        """The bytes of a vector of bytes, or of a string."""
        start, count = self.vector(field, 1)
        return self.file.data[start : start + count]

    def text(self, field: int) -> str:
        """A string."""
        return self.content(field).decode("utf-8", "replace")


def _places(start: int, count: int) -> Iterator[int]:
    return iter(range(start, start + 4 * count, 4))
