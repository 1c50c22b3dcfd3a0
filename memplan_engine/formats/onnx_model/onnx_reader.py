"""ONNX models → Graph, without their weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.onnx_model.onnx_wire import looks_like_onnx
from memplan_engine.graph import Graph


@dataclass(frozen=True, slots=True)
class OnnxImporter:
    """Models in ONNX's own format. Weights in other files are not opened and need not be there.

    The graphs inside If, Loop and Scan are not planned: what they read from outside counts as read by their
    node. Reshape, Squeeze, Unsqueeze, Flatten, Identity and Dropout at inference share their input's storage.
    Nodes that only make constants are folded; outputs that are optional and unused are left out.
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

        return load_model(path, options)
