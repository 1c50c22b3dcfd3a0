"""ONNX models → Graph, without their weights; and whether a file is one, by the frame of its message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memplan_engine.errors import InputError
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.graph import Graph

_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Field number → wire type (0 a number, 2 a length and bytes) in ModelProto."""
_IR_VERSION, _GRAPH = 1, 7
_GRAPH_TAGS = frozenset(field << 3 | 2 for field in (1, 2, 5, 10, 11, 12, 13, 14, 15))
_MOST_FIELDS = 4096


@dataclass(frozen=True, slots=True)
class OnnxImporter:
    """Models in ONNX's own format. Weights in other files are not opened and need not be there.

    What is inside If, Loop and Scan is laid out before them where all of it is known (`onnx_insides`). What
    they read from outside counts as read by their node. Reshape, Squeeze, Unsqueeze, Flatten, Identity and
    Dropout at inference share their input's storage. Nodes that only make constants are folded; outputs that
    are optional and unused are left out.
    """

    name: str = "onnx"
    description: str = "an ONNX model"
    binds_dimensions: bool = True

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the file has the frame of a ModelProto."""
        return looks_like_onnx(path)

    def load(self, path: Path, options: ImportOptions) -> Graph:
        """The graph, its named dimensions bound by `options.dims`. Those of its inputs that are left are
        symbols of the graph, from 1 on, at `options.hints` or `onnx_symbols.DEFAULT_HINT`.

        Raises
        ------
        InputError: a damaged model, one whose shapes contradict each other, tensors without a fixed shape or
            with one that is no formula, which are named together with the dimensions that can be bound.
        MissingDependencyError: onnx is not installed.
        """
        # Here, not above: who opens another kind of file need not wait for it.
        from memplan_engine.formats.onnx_model.onnx_shapes import load_model

        if not looks_like_onnx(path):
            raise InputError(path.name, "", "bytes that are not an ONNX model", "an ONNX model")
        return load_model(path, options)


def looks_like_onnx(path: Path) -> bool:
    """Whether the file walks like a ModelProto up to a version and the beginning of a graph; a file that
    was cut later still does. Reads a few bytes a field. False when it cannot be read."""
    try:
        with path.open("rb") as file:
            return _walk(file, path.stat().st_size)
    except (OSError, ValueError):
        return False


def _walk(file: BinaryIO, size: int) -> bool:
    version = graph = False
    for _ in range(_MOST_FIELDS):
        tag = _number(file)
        if tag is None or _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return False
        value = _number(file)
        if value is None:
            return False
        field = tag >> 3
        if field == _IR_VERSION:
            version = 0 < value < 1000
        elif field == _GRAPH:
            graph = value == 0 or file.read(1)[:1] in {bytes([tag]) for tag in _GRAPH_TAGS}
            file.seek(-1 if value else 0, 1)
        if version and graph:
            return True
        if tag & 7 == 2:
            if file.tell() + value > size:
                return False
            file.seek(value, 1)
    return False


def _number(file: BinaryIO) -> int | None:
    """The varint at the file's position; None when there is none."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
