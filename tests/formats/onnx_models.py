"""Small ONNX models, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memplan_engine import Graph, ImportOptions, InputError, load

F = TensorProto.FLOAT


def value(name: str, *shape: int | str | None, kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def node(kind: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """`inputs` and `outputs` are names with spaces between; "_" is one that is left out."""
    names = [[part.replace("_", "") for part in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, name=name or None, **attributes)  # type: ignore[misc]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def read(tmp_path: Path, made: onnx.ModelProto, **dims: int) -> Graph:
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    graph = load(path, ImportOptions(dims=dims))
    assert isinstance(graph, Graph)
    return graph


def refusal(tmp_path: Path, made: onnx.ModelProto, dims: dict[str, int] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, made, **dims or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


X, Y = value("x", 2, 3), value("y", 2, 3)
