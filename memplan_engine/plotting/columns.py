"""Columns for charts in a browser: one run of bytes, onto which `frontend/columns.js` maps typed arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memplan_engine.plotting.strip_lines import StripLine
from memplan_engine.problem import Ints

ALIGNMENT = 8
Entry = list[Any]
"""A column as a header names it: [type, byte offset, length, unit]."""
_CODES = {"uint8": "u1", "int32": "i4", "uint32": "u4", "float64": "f8"}


@dataclass(slots=True)
class Columns:
    """Collects columns in the byte order of all browsers, each on an 8-byte boundary; equal ones share their
    place."""

    chunks: list[bytes] = field(default_factory=list)
    length: int = 0
    places: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def add(self, values: NDArray[Any], unit: int = 1) -> Entry:
        """Place `values` (uint8, int32, uint32 or float64) as they are."""
        raw = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        code = _CODES[values.dtype.name]
        at = self.places.get((code, raw))
        if at is None:
            at = self.places[code, raw] = self.length
            self.chunks.append(raw + bytes(-len(raw) % ALIGNMENT))
            self.length += len(self.chunks[-1])
        return [code, at, len(values), unit]

    def add_steps(self, values: Ints) -> Entry:
        """Steps as uint32 where they fit, else as float64 (exact up to 2^53)."""
        return self.add(_fitted(np.asarray(values, np.int64)))

    def add_bytes(self, values: Ints) -> Entry:
        """Bytes as multiples of a unit, the largest power of two that divides all: uint32 where they fit,
        else float64 (exact while the multiples stay under 2^53); never float32."""
        column = np.asarray(values, np.int64)
        bits = int(np.bitwise_or.reduce(column)) if len(column) else 0
        unit = (bits & -bits) or 1
        return self.add(_fitted(column // unit), unit)

    def add_texts(self, texts: Sequence[str]) -> dict[str, Entry]:
        """Texts as one UTF-8 run and the places where they end (uint32)."""
        whole = "".join(texts)
        raw, lengths = whole.encode("utf-8", "replace"), list(map(len, texts))
        if len(raw) != len(whole):
            lengths = [len(text.encode("utf-8", "replace")) for text in texts]
        ends = np.cumsum(lengths, dtype=np.int64).astype(np.uint32)
        return {"ends": self.add(ends), "text": self.add(np.frombuffer(raw, np.uint8))}

    def add_lines(self, lines: Iterable[StripLine]) -> list[dict[str, Any]]:
        """Lines on the strip, with how they are drawn."""
        return [
            {
                "label": line.label,
                "exact": line.exact,
                "colors": line.colours,
                "dash": line.dash,
                "start": self.add_steps(line.start),
                "bytes": self.add_bytes(line.nbytes),
            }
            for line in lines
        ]


def _fitted(column: Ints) -> NDArray[Any]:
    fits = not len(column) or (int(column.min()) >= 0 and int(column.max()) < 2**32)
    return column.astype(np.uint32 if fits else np.float64)
