"""ONNX models with named dimensions left open: what their formulas give is what binding gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from memplan_examples import PATH
from onnx import TensorProto, helper, numpy_helper

from memplan_engine import Graph, ImportOptions, InputError, load
from memplan_engine.formats.onnx_model.onnx_fit_formulas import FormulaFit, Known, Window
from memplan_engine.graph import Symbol
from tests.support.dynamic_models import shapes_at, sizes_at

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, *shape: int | str | None, kind: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def numbers(name: str, *values: float, kind: int = I64) -> TensorProto:
    return helper.make_tensor(name, kind, [len(values)], values)


def weight(name: str, *shape: int) -> TensorProto:
    tensor = TensorProto(name=name, dims=shape, data_type=F, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w")
    return tensor


def write(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: Sequence[TensorProto] = (),
) -> Path:
    made = [helper.make_tensor_value_info(name, F, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", list(inputs), made, list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def images(path: Path) -> Path:
    """Strides, a pooling that rounds up, an upsampling, a padding, a concatenation along a moving axis."""
    nodes = [
        node("Conv", "x w1", "c1", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "c1 w2", "c2", kernel_shape=[5, 5], strides=[3, 3], auto_pad="SAME_UPPER"),
        node("MaxPool", "c1", "p", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("Conv", "x w3", "patches", kernel_shape=[16, 16], strides=[16, 16]),
        node("ConvTranspose", "c2 w4", "up", kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", "c1 none scales", "big", mode="nearest"),
        node("Pad", "c1 pads", "padded"),
        node("Concat", "c1 padded", "both", axis=3),
        node("Flatten", "c1", "flat", axis=2),
        node("GlobalAveragePool", "p", "y"),
    ]
    weights = [
        weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 5, 5), weight("w3", 4, 3, 16, 16),
        weight("w4", 8, 8, 4, 4), numbers("scales", 1, 1, 2.5, 2, kind=F),
        numbers("pads", 0, 0, 0, 1, 0, 0, 0, 2), numbers("none", kind=F),
    ]  # fmt: skip
    outputs = ["y", "patches", "up", "big", "both", "flat"]
    return write(path, nodes, [value("x", "batch", 3, "height", "width")], outputs, weights)


def reckoned(path: Path) -> Path:
    """Shapes that the model computes: halves, products, ranges, and a −1 in a Reshape."""
    nodes = [
        node("Shape", "x", "whole"),
        node("Gather", "whole one", "seq"),
        node("Div", "seq two", "half"),
        node("Slice", "x zero half one", "first"),
        node("Relu", "first", "a"),
        node("Gather", "whole nought", "batch"),
        node("Mul", "batch seq", "rows"),
        node("Concat", "rows width", "flat_shape", axis=0),
        node("Reshape", "x flat_shape", "flat"),
        node("Relu", "flat", "b"),
        node("Reshape", "x blocks", "c"),
        node("Relu", "c", "d"),
        node("Squeeze", "seq", "end"),
        node("Range", "start end step", "places"),
        node("Unsqueeze", "places zero", "row"),
        node("Concat", "batch seq", "square", axis=0),
        node("Expand", "row square", "grid"),
        node("Add", "grid ids", "sums"),
        node("Cast", "sums", "e", to=F),
    ]
    weights = [
        numbers("nought", 0), numbers("zero", 0), numbers("one", 1), numbers("two", 2), numbers("width", 6),
        numbers("blocks", 0, -1, 2),
        helper.make_tensor("start", I64, [], [0]), helper.make_tensor("step", I64, [], [1]),
    ]  # fmt: skip
    inputs = [value("x", "batch", "seq", 6), value("ids", "batch", "seq", kind=I64)]
    return write(path, nodes, inputs, ["a", "b", "d", "e"], weights)


CASES: dict[str, tuple[Any, Any, Any]] = {
    "images": (images, {"height": 40, "width": 48}, [(1, 40, 48), (3, 61, 67), (2, 64, 801), (5, 47, 63)]),
    "reckoned": (reckoned, {}, [(2, 2), (1, 4), (3, 17), (7, 1000)]),
}


def read(path: Path, **options: Any) -> Graph:
    graph = load(path, ImportOptions(**options))
    assert isinstance(graph, Graph)
    return graph


@pytest.mark.parametrize("name", CASES)
def test_formulas_give_what_binding_gives(tmp_path: Path, name: str) -> None:
    build, hints, several = CASES[name]
    path = build(tmp_path / "m.onnx")
    graph = read(path, hints=hints)
    names = [symbol.name for symbol in graph.symbols]
    assert {symbol.name: symbol.hint for symbol in graph.symbols} == dict.fromkeys(names, 2) | hints
    for values in several:
        at = dict(zip(names, values, strict=True))
        bound = read(path, dims=at)
        assert sizes_at(graph, at) == [storage.nbytes for storage in bound.storages], at
        assert shapes_at(graph, at) == [tensor.shape for tensor in bound.tensors], at


@pytest.mark.parametrize("name", CASES)
def test_plain_numbers_are_those_of_binding_to_the_hints(tmp_path: Path, name: str) -> None:
    build, hints, _ = CASES[name]
    path = build(tmp_path / "m.onnx")
    graph = read(path, hints=hints)
    bound = read(path, dims={symbol.name: symbol.hint for symbol in graph.symbols})
    assert bound.symbols == ()
    assert graph.ops == bound.ops
    assert [(s.name, s.nbytes, s.role) for s in graph.storages] == [
        (s.name, s.nbytes, s.role) for s in bound.storages
    ]
    assert [(t.shape, t.nbytes) for t in graph.tensors] == [(t.shape, t.nbytes) for t in bound.tensors]


def test_formulas_of_the_images_by_hand(tmp_path: Path) -> None:
    graph = read(images(tmp_path / "m.onnx"), hints={"height": 40, "width": 48})
    # A patch needs 16 pixels.
    assert graph.symbols == (
        Symbol("batch", 1, None, 2), Symbol("height", 16, None, 40), Symbol("width", 16, None, 48),
    )  # fmt: skip
    formulas = {tensor.name: tensor.formulas for tensor in graph.tensors}
    assert formulas["x"] == ("batch", "3", "height", "width")
    assert formulas["c1"][2] == "((height - 1)//2) + 1"
    assert formulas["patches"] == ("batch", "4", "height//16", "width//16")
    assert formulas["y"] == ("batch", "8", "1", "1")
    storages = {storage.name: storage for storage in graph.storages}
    assert storages["x"].formula == "12*batch*height*width"
    assert storages["y"].formula == "32*batch"
    assert storages["w1"].formula == ""


def test_the_example_transformer() -> None:
    graph = read(PATH / "transformer_dynamic.onnx", hints={"seq": 128})
    assert graph.symbols == (Symbol("batch", 1, None, 2), Symbol("seq", 1, None, 128))
    assert {storage.formula for storage in graph.storages} == {
        "", "8*batch*seq", "1024*batch*seq", "4096*batch*seq", "16*batch*seq**2", "1024*batch",
    }  # fmt: skip


def test_some_dimensions_bound_and_some_not(tmp_path: Path) -> None:
    graph = read(reckoned(tmp_path / "m.onnx"), dims={"seq": 10})
    assert [symbol.name for symbol in graph.symbols] == ["batch"]
    assert {tensor.name: tensor.formulas for tensor in graph.tensors}["b"] == ("10*batch", "6")


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"bathc": 3}, "hints: found the dimension 'bathc', expected one of batch, seq"),
        ({"batch": 0}, "hints batch: found 0, expected 1 or more"),
    ],
)
def test_hints_that_are_none_are_refused(tmp_path: Path, hints: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(reckoned(tmp_path / "m.onnx"), hints=hints)


def test_hints_for_what_has_no_dimensions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="as every dimension is a number"):
        read(reckoned(tmp_path / "m.onnx"), dims={"batch": 1, "seq": 2}, hints={"seq": 2})
    with pytest.raises(InputError, match="hints: found seq=2, expected no dimensions to bind"):
        load(PATH / "gpt2.json", ImportOptions(hints={"seq": 2}))


def test_a_size_that_is_no_formula_is_named_with_what_to_bind(tmp_path: Path) -> None:
    weights = [numbers("zero", 0), numbers("one", 1), numbers("most", 64)]
    nodes = [
        node("Shape", "x", "s"),
        node("Min", "s most", "end"),
        node("Slice", "x zero end zero", "part"),
        node("Relu", "part", "y"),
    ]
    path = write(tmp_path / "m.onnx", nodes, [value("x", "seq")], ["y"], weights)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (
        "m.onnx: tensor 'part': found a size that is no formula in seq, expected sizes that follow from "
        "theirs: bind seq with --dim NAME=VALUE"
    )
    assert read(path, dims={"seq": 100}).tensors[-1].shape == (64,)


def test_hints_at_which_a_window_does_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(images(tmp_path / "m.onnx"))
    assert str(caught.value) == (
        "m.onnx: hints batch=2, height=2, width=2: found a size of 1, which is less than its window (node "
        "'p'), expected hints at which the model has shapes"
    )


def test_dimensions_that_must_be_equal_are_said_to_be(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x y", "z")]
    path = write(tmp_path / "m.onnx", nodes, [value("x", "a", "n"), value("y", "k", "b")], ["z"])
    with pytest.raises(InputError, match=r"dimensions: found a model whose dimensions a, n, k, b cannot"):
        read(path)
    assert read(path, dims={"k": 3, "n": 3}).tensors[-1].formulas == ("a", "b")


def test_sizes_under_a_byte_are_rounded_up(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Identity", "x", "y")],
        "g",
        [value("x", "n", 3, kind=TensorProto.INT4)],
        [value("y", "n", 3, kind=TensorProto.INT4)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (storage,) = read(path).storages
    assert (storage.nbytes, storage.formula) == (3, "(12*n + 7)//8")


def test_what_is_fitted_and_what_is_not() -> None:
    import sympy

    n = sympy.Symbol("n", integer=True, positive=True)
    at = (2, 37, 54, 83, 120, 171, 233, 301, 350)
    known = [[Known(at, n)]]

    def fitted(rule: Any, window: Window | None = None) -> Any:
        fit = FormulaFit((Known(at, n),))
        return fit.size(tuple(rule(size) for size in at), known, window)

    assert fitted(lambda size: 7) == 7
    assert fitted(lambda size: size) == n
    assert fitted(lambda size: 3 * size - 4) == 3 * n - 4
    assert fitted(lambda size: size // 3) == sympy.floor(n / 3)
    assert fitted(lambda size: (size + 1) // 2) == sympy.floor((n + 1) / 2)
    assert fitted(lambda size: (size - 3) // 16 + 1, Window(16, -3)) == sympy.floor((n - 3) / 16) + 1
    assert fitted(lambda size: min(size, 100)) is None
    assert fitted(lambda size: size * size) is None
    assert fitted(lambda size: size ^ 5) is None


def test_a_weight_in_the_file_keeps_its_size(tmp_path: Path) -> None:
    table = numpy_helper.from_array(__import__("numpy").ones((4, 2), "float32"), "table")
    path = write(tmp_path / "m.onnx", [node("MatMul", "x table", "y")], [value("x", "n", 4)], ["y"], [table])
    assert [(s.nbytes, s.formula) for s in read(path, hints={"n": 5}).storages] == [
        (80, "16*n"), (32, ""), (40, "8*n"),
    ]  # fmt: skip
