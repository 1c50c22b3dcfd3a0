"""ONNX models with open dimensions and with shapes that they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from memplan_engine.graph import Symbol
from tests.formats.onnx_models import X, Y, model, node, read, refusal, value, weight

SYMBOLIC = model(
    [node("Relu", "x", "h"), node("Relu", "h", "y")],
    [value("x", "batch", "seq", 8)],
    [value("y", "batch", "seq", 8)],
)


def test_symbolic_dimensions_are_bound(tmp_path: Path) -> None:
    graph = read(tmp_path, SYMBOLIC, batch=2, seq=5)
    assert [(t.shape, t.nbytes) for t in graph.tensors] == [((2, 5, 8), 320)] * 3


def test_open_dimensions_are_symbols(tmp_path: Path) -> None:
    graph = read(tmp_path, SYMBOLIC, seq=5)
    assert graph.symbols == (Symbol("batch", 1, None, 2),)
    assert [(t.shape, t.nbytes, t.formulas) for t in graph.tensors] == [
        ((2, 5, 8), 320, ("batch", "5", "8"))
    ] * 3
    assert [storage.formula for storage in graph.storages] == ["160*batch"] * 3


def test_dimensions_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, SYMBOLIC, {"bathc": 1}) == (
        "m.onnx: --dim: found the dimension 'bathc', expected one of batch, seq"
    )
    fixed = model([node("Relu", "x", "y")], [X], [Y])
    assert "expected none, as every dimension is a number" in refusal(tmp_path, fixed, {"batch": 1})
    assert "--dim batch: found 0, expected 1 or more" in refusal(tmp_path, SYMBOLIC, {"batch": 0})


@pytest.mark.parametrize("size", [None, -1])
def test_a_dimension_without_a_name_is_bound_by_its_place(tmp_path: Path, size: int | None) -> None:
    made = model([node("Relu", "x", "y")], [value("x", size, 3)], [value("y", None, 3)])
    graph = read(tmp_path, made)
    assert graph.symbols == (Symbol("s0", 1, None, 2),)
    assert [tensor.formulas for tensor in graph.tensors] == [("s0", "3")] * 2
    assert read(tmp_path, made, **{"x[0]": 4}).tensors[1].nbytes == 48


def test_shapes_that_the_model_computes_are_evaluated(tmp_path: Path) -> None:
    """What exporters write for expand and for halving: inference alone cannot follow Div and Where."""
    nodes = [
        node("Shape", "x", "s"),
        node("Div", "s two", "half"),
        node("Equal", "half one", "is"),
        node("Where", "is two half", "size"),
        node("Expand", "w size", "e"),
        node("Relu", "e", "r"),
        node("ReduceSum", "x", "total", keepdims=0),
        node("Mul", "r total", "y"),
    ]
    weights = [
        weight("two", np.array([2])),
        weight("one", np.array([1])),
        weight("w", np.ones(1, np.float32)),
    ]
    made = model(nodes, [value("x", "batch", 8)], [value("y", None, None)], weights)
    with_4 = {t.name: t.shape for t in read(tmp_path, made, batch=4).tensors}
    assert with_4["y"] == (2, 4)
    assert {t.name: t.shape for t in read(tmp_path, made, batch=2).tensors}["y"] == (2, 4)
    assert {t.name: t.shape for t in read(tmp_path, made, batch=10).tensors}["y"] == (5, 4)


def test_a_shape_that_depends_on_data_is_an_error(tmp_path: Path) -> None:
    made = model([node("NonZero", "x", "y")], [X], [value("y", 2, None, kind=TensorProto.INT64)])
    assert refusal(tmp_path, made).startswith("m.onnx: tensor 'y': found no fixed shape")
