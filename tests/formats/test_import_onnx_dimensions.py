"""ONNX models with open dimensions and with shapes that they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from memplan_engine import Graph, ImportOptions, InputError, load, to_problem
from memplan_engine.analysis.claims import counted
from memplan_engine.graph import Symbol
from memplan_engine.symbolic import sweep
from memplan_engine.symbolic.symbolic_problem import resolve
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


def test_values_of_dimensions_are_said(tmp_path: Path) -> None:
    assert counted(to_problem(read(tmp_path, SYMBOLIC, batch=2, seq=5))).endswith("; at batch = 2, seq = 5")
    said = counted(to_problem(read(tmp_path, SYMBOLIC, seq=5)))
    assert said.endswith("; at batch = 2 unless set (--symbol batch=…); at seq = 5")


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
    assert graph.symbols == (Symbol("s0", 1, None, 2, "x[0]"),)
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


def test_a_name_that_no_formula_can_have_is_a_symbol_with_that_name(tmp_path: Path) -> None:
    """Its value is taken under either, while the file is read and afterwards."""
    x, y = value("x", "batch size", "s0"), value("y", "s 1")
    made = model(
        [node("Relu", "x", "a"), node("Relu", "y", "b")],
        [x, y],
        [value("a", None, None), value("b", None)],
    )
    graph = read(tmp_path, made)
    assert [(symbol.name, symbol.called) for symbol in graph.symbols] == [
        ("s1", "batch size"),
        ("s0", ""),
        ("s2", "s 1"),
    ]
    by_symbol = read(tmp_path, made, s1=5, s0=3)
    assert by_symbol.tensors[0].shape == (5, 3)
    assert read(tmp_path, made, **{"batch size": 5, "s0": 3}) == by_symbol
    assert resolve(graph, {"batch size": 5, "s0": 3}) == resolve(graph, {"s1": 5, "s0": 3})
    assert sweep(graph, "batch size", [4]).symbol == "s1"
    assert refusal(tmp_path, made, {"s1": 5, "batch size": 6}) == (
        "m.onnx: --dim batch size: found 5 and 6, expected one value for a dimension"
    )
    with pytest.raises(InputError, match="found 5 and 6, expected one value for a symbol"):
        resolve(graph, {"s1": 5, "batch size": 6})


FOLLOWING = model(
    [node("Concat", "x y", "c", axis=0), node("Exp", "c", "z")],
    [value("x", "2*s0", 8), value("y", "s0 + 1", 8)],
    [value("z", "3*s0 + 1", 8)],
)


def test_a_dimension_that_is_a_formula_follows_its_symbols(tmp_path: Path) -> None:
    """32 bytes a row: 2n, n + 1 and twice 3n + 1 rows."""
    graph = read(tmp_path, FOLLOWING)
    assert graph.symbols == (Symbol("s0", 1, None, 2),)
    sizes = [storage.formula for storage in graph.storages]
    assert sizes == ["64*s0", "32*s0 + 32", "96*s0 + 32", "96*s0 + 32"]
    assert [storage.nbytes for storage in graph.storages] == [128, 96, 224, 224]
    at_4 = read(tmp_path, FOLLOWING, s0=4)
    assert [storage.nbytes for storage in at_4.storages] == [256, 160, 416, 416]
    assert read(tmp_path, FOLLOWING, **{"2*s0": 8}) == at_4
    assert read(tmp_path, FOLLOWING, **{"2*s0": 8, "s0+1": 5}) == at_4
    assert refusal(tmp_path, FOLLOWING, {"2*s0": 8, "s0 + 1": 7}) == (
        "m.onnx: --dim s0 + 1: found 7, expected 5, as s0=4"
    )
    assert "expected one that only one s0 gives" in refusal(tmp_path, FOLLOWING, {"2*s0": 7})


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ([("batch*seq", 8)], ["32*batch*seq"]),
        ([("batch", "past + 1"), ("past",)], ["4*batch*(past + 1)", "4*past"]),
        ([("floor(s0/2)", 8)], ["32*(s0//2)"]),
        ([("enc / 2", 8)], ["16*enc"]),
        ([("n//8 - 1", 8)], ["32*(n//8) - 32"]),
        ([("PythonMod(s0, 4) + 1", 8)], ["32*((s0 % 4) + 1)"]),
        ([("a-b",), ("a",), ("b",)], ["4*(a - b)", "4*a", "4*b"]),
        ([("batch-size", "seq-len")], ["4*s0*s1"]),
        ([("dim-0", "dim-1")], ["4*s0*s1"]),
    ],
)
def test_formulas_and_names_with_a_hyphen(
    tmp_path: Path, shapes: list[tuple[int | str, ...]], sizes: list[str]
) -> None:
    """A hyphen is a minus only between dimensions of the model."""
    inputs = [value(f"x{number}", *shape) for number, shape in enumerate(shapes)]
    nodes = [node("Relu", f"x{number}", f"y{number}") for number in range(len(shapes))]
    outputs = [value(f"y{number}", *[None] * len(shape)) for number, shape in enumerate(shapes)]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, inputs, outputs).SerializeToString())
    graph = load(path, ImportOptions(hints={"a": 5} if "a-b" in shapes[0] else {}))
    assert isinstance(graph, Graph)
    assert [storage.formula for storage in graph.storages[: len(shapes)]] == sizes


def test_a_relation_that_cannot_be_read_needs_a_value(tmp_path: Path) -> None:
    made = model(
        [node("Relu", "x", "y")], [value("x", "odd(seq)", "seq")], [value("y", None, None)]
    )  # fmt: skip
    assert refusal(tmp_path, made) == (
        "m.onnx: dimension 'odd(seq)': found a formula that cannot be read, expected a value for it, as in "
        "--symbol 'odd(seq)=VALUE'"
    )
    assert read(tmp_path, made, **{"odd(seq)": 3}).storages[0].formula == "12*seq"


def test_what_a_wrong_name_of_a_result_says_is_not_believed(tmp_path: Path) -> None:
    made = model([node("Relu", "x", "y")], [value("x", "n", 8)], [value("y", "2*n", 8)])
    assert [storage.formula for storage in read(tmp_path, made).storages] == ["32*n"] * 2


def test_a_result_that_nothing_sizes_is_bound_by_the_name_that_is_said(tmp_path: Path) -> None:
    """By the name that an output of the same length declares, else by its place."""
    nodes = [node("NonZero", "x", "nz"), node("Neg", "nz", "y")]
    named = model(nodes, [X], [value("y", 2, "how many", kind=TensorProto.INT64)])
    assert refusal(tmp_path, named) == (
        "m.onnx: tensors 'nz', 'y': found no fixed shape, expected fixed shapes: bind how many with --dim "
        "'NAME=VALUE'"
    )
    assert [t.nbytes for t in read(tmp_path, named, **{"how many": 5}).tensors] == [24, 80, 80]
    unnamed = model(nodes, [X], [value("y", 2, None, kind=TensorProto.INT64)])
    assert "bind nz[1] with --dim" in refusal(tmp_path, unnamed)
    assert [t.nbytes for t in read(tmp_path, unnamed, **{"nz[1]": 5}).tensors] == [24, 80, 80]


def test_a_value_that_a_result_cannot_have_is_refused(tmp_path: Path) -> None:
    made = model([node("Relu", "x", "y")], [value("x", 4, 8)], [value("y", "rows", 8)])
    assert [t.nbytes for t in read(tmp_path, made, rows=4).tensors] == [128, 128]
    assert (
        refusal(tmp_path, made, {"rows": 9}) == "m.onnx: --dim rows: found 9, expected 4, as the model gives"
    )
    open_one = model([node("Relu", "x", "y")], [value("x", "n", 8)], [value("y", "rows", 8)])
    assert [t.nbytes for t in read(tmp_path, open_one, n=9, rows=9).tensors] == [288, 288]
    assert refusal(tmp_path, open_one, {"rows": 9}) == (
        "m.onnx: --dim rows: found 9, expected 2, as the model gives at n=2"
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "most"),
    [
        ("NonZero", "x", 6),
        ("Unique", "x", 6),
        ("Compress", "x six", 6),
        ("NonMaxSuppression", "boxes scores", 8),
    ],
)
def test_no_more_is_selected_than_there_is(tmp_path: Path, kind: str, inputs: str, most: int) -> None:
    """Of 2 × 3 elements, and of 2 × 4 boxes of one class."""
    given = [X, value("boxes", 2, 4, 4), value("scores", 2, 1, 4)]
    weights = [weight("six", np.array([True] * 6))]
    made = model([node(kind, inputs, "y")], given, [], weights)
    shape = {"NonZero": (2, "count"), "NonMaxSuppression": ("count", 3)}.get(kind, ("count",))
    element = TensorProto.FLOAT if kind in ("Unique", "Compress") else TensorProto.INT64
    made.graph.output.append(value("y", *shape, kind=element))
    assert read(tmp_path, made, count=most).tensors
    found = refusal(tmp_path, made, {"count": most + 1})
    assert found.startswith("m.onnx: tensor 'y': found the shape")
    assert "expected at most" in found
