"""ONNX: the real models inside the onnx package, and small ones for every rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from memplan_examples import PATH
from memplan_examples.make_onnx import build
from onnx import TensorProto, helper

from memplan_engine import Graph, InputError, Role, load, lower_bound, to_problem
from memplan_engine.analysis.claims import counted
from memplan_engine.formats.onnx_model.onnx_graph import module_path
from memplan_engine.formats.onnx_model.onnx_reader import OnnxImporter, looks_like_onnx
from memplan_engine.graph import storage_bytes
from tests.formats.onnx_models import F, X, Y, model, node, read, refusal, value, weight

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def homes(graph: Graph) -> dict[str, str]:
    return {tensor.name: tensor.storage for tensor in graph.tensors}


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


# Parameters as published (batch norms with their statistics), 4 bytes each, and the 16 bytes of the shape
# that the one Reshape reads. The bound of the straight networks is the first convolution's output, twice:
# what its activation reads and what it makes.
REAL = {
    "bvlc_alexnet": (60_965_224 * 4 + 16, 2 * 4 * 96 * 54 * 54),
    "vgg19": (143_667_240 * 4 + 16, 2 * 4 * 64 * 224 * 224),
    "resnet50": ((25_557_032 + 53_120) * 4 + 16, 3 * 4 * 256 * 56 * 56),
    "squeezenet": (1_235_496 * 4, 2 * 4 * 64 * 111 * 111),
}


@pytest.mark.parametrize("name", REAL)
def test_real_models_to_the_byte(name: str) -> None:
    graph = load(LIGHT / f"light_{name}.onnx")
    assert isinstance(graph, Graph)
    constants, bound = REAL[name]
    assert storage_bytes(graph, Role.CONSTANT) == constants
    assert lower_bound(to_problem(graph)).nbytes == bound
    assert len(graph.inputs) == 1  # the file lists every weight as an input, too


def test_all_nine_light_models_load() -> None:
    files = sorted(LIGHT.glob("*.onnx"))
    assert len(files) == 9
    for file in files:
        graph = load(file)
        assert isinstance(graph, Graph)
        assert not {"Constant", "ConstantOfShape"} & set(kinds(graph))
        assert len(graph.ops) > 20


def test_the_example_is_reproducible_and_squeezenet_1_1() -> None:
    assert build() == (PATH / "squeezenet.onnx").read_bytes()
    graph = load(PATH / "squeezenet.onnx")
    assert isinstance(graph, Graph)
    assert storage_bytes(graph, Role.CONSTANT) == 1_235_496 * 4
    assert graph.ops[6].module == "fire2.expand1x1"


def test_initializers_are_constants_and_only_what_is_read_counts(tmp_path: Path) -> None:
    graph = read(
        tmp_path,
        model(
            [node("Add", "x w", "y")],
            [X, value("w", 3)],
            [Y],
            [weight("w", np.ones(3, np.float32)), weight("unread", np.ones(999, np.float32))],
        ),
    )
    assert (graph.inputs, graph.constants, graph.outputs) == (("x",), ("w",), ("y",))
    assert storage_bytes(graph, Role.CONSTANT) == 12
    assert (graph.tensors[-1].shape, graph.tensors[-1].dtype, graph.tensors[-1].nbytes) == (
        (2, 3),
        "float32",
        24,
    )
    assert graph.name == "m"


def test_quantized_weights_stay_as_small_as_the_file_has_them(tmp_path: Path) -> None:
    """32 × 8 elements of four bits, and eight scales; as floats they are 1,024 B while they are read."""
    small = helper.make_tensor("w", TensorProto.INT4, [32, 8], b"\x11" * 128, raw=True)
    scales = weight("s", np.full((1, 8), 0.5, np.float32))
    nodes = [
        node("DequantizeLinear", "w s", "wide", axis=0, block_size=32),
        node("MatMul", "x wide", "y"),
    ]
    graph = read(tmp_path, model(nodes, [value("x", 4, 32)], [value("y", 4, 8)], [small, scales], opset=21))
    assert kinds(graph) == ["DequantizeLinear", "MatMul"]
    assert storage_bytes(graph, Role.CONSTANT) == 128 + 8 * 4
    assert lower_bound(to_problem(graph)).nbytes == 1024 + 4 * 8 * 4


def test_constants_are_folded_through_chains_and_shapes(tmp_path: Path) -> None:
    graph = read(
        tmp_path,
        model(
            [
                node("Shape", "x", "s"),
                node("Constant", "", "one", value_ints=[1]),
                node("Gather", "s one", "columns", axis=0),
                node("ConstantOfShape", "columns", "bias"),
                node("Neg", "bias", "minus"),
                node("Add", "x minus", "y"),
            ],
            [X],
            [Y],
        ),
    )
    assert kinds(graph) == ["Add"]
    assert graph.constants == ("minus",)
    assert [(t.name, t.nbytes) for t in graph.tensors] == [("x", 24), ("minus", 12), ("y", 24)]


def test_random_numbers_are_no_constants(tmp_path: Path) -> None:
    nodes = [node("RandomNormal", "", "r", shape=[2, 3]), node("Add", "x r", "y")]
    assert kinds(read(tmp_path, model(nodes, [X], [Y]))) == ["RandomNormal", "Add"]


def test_an_identity_of_a_weight_is_the_weight(tmp_path: Path) -> None:
    nodes = [node("Identity", "w", "tied"), node("Add", "x w", "h"), node("Add", "h tied", "y")]
    graph = read(tmp_path, model(nodes, [X], [Y], [weight("w", np.ones(3, np.float32))]))
    assert storage_bytes(graph, Role.CONSTANT) == 12
    assert homes(graph)["tied"] == "w"


def test_views_share_their_input(tmp_path: Path) -> None:
    axes = weight("axes", np.array([0]))
    graph = read(
        tmp_path,
        model(
            [
                node("Relu", "x", "a"),
                node("Unsqueeze", "a axes", "b"),
                node("Flatten", "b", "c"),
                node("Reshape", "c six", "d"),
                node("Identity", "d", "e"),
                node("Squeeze", "b axes", "f"),
                node("Dropout", "e", "g mask"),
                node("Transpose", "f", "t"),
                node("Relu", "g", "y"),
            ],
            [X],
            [value("y", 6), value("t", 3, 2)],
            [axes, weight("six", np.array([6]))],
        ),
    )
    own = homes(graph)
    assert {name: own[name] for name in "abcdefgty"} == {**dict.fromkeys("abcdefg", "a"), "t": "t", "y": "y"}
    assert "mask" not in own
    assert [b.name for b in (to_problem(graph)[i] for i in range(3))] == ["a", "t", "y"]
    assert (to_problem(graph)[0].start, to_problem(graph)[0].end) == (0, 9)


@pytest.mark.parametrize(("training", "home"), [(False, "x"), (True, "d")])
def test_dropout_that_trains_is_no_view(tmp_path: Path, training: bool, home: str) -> None:
    made = model(
        [node("Dropout", "x ratio mode", "d"), node("Relu", "d", "y")],
        [X],
        [Y],
        [weight("ratio", np.float32(0.5)), weight("mode", np.array(training))],
    )
    assert homes(read(tmp_path, made))["d"] == home


def test_outputs_that_are_inputs_or_constants(tmp_path: Path) -> None:
    nodes = [
        node("Identity", "x", "y"),
        node("Constant", "", "c", value=weight("c", np.zeros(2, np.float32))),
    ]
    graph = read(tmp_path, model(nodes, [X], [Y, value("c", 2)]))
    assert {s.name: s.role for s in graph.storages} == {"x": Role.INPUT, "c": Role.CONSTANT}
    assert graph.outputs == ("y", "c")
    assert len(to_problem(graph)) == 0


@pytest.mark.parametrize(("outputs", "made"), [("y", ("y",)), ("y i", ("y",)), ("y i", ("y", "i"))])
def test_optional_outputs_count_only_when_read(tmp_path: Path, outputs: str, made: tuple[str, ...]) -> None:
    nodes = [node("MaxPool", "x", outputs, kernel_shape=[1])]
    last = [value("y", 1, 2, 3)] + ([value("i", 1, 2, 3, kind=TensorProto.INT64)] if "i" in made else [])
    graph = read(tmp_path, model(nodes, [value("x", 1, 2, 3)], last))
    assert graph.ops[0].outputs == made


def test_outputs_and_inputs_that_are_left_out(tmp_path: Path) -> None:
    shape = {"hidden_size": 4}
    weights = [weight("w", np.zeros((1, 16, 3), np.float32)), weight("r", np.zeros((1, 16, 4), np.float32))]
    nodes = [node("LSTM", "x w r _ _ h", "_ y", **shape)]
    graph = read(
        tmp_path, model(nodes, [value("x", 5, 2, 3), value("h", 1, 2, 4)], [value("y", 1, 2, 4)], weights)
    )
    assert (graph.ops[0].inputs, graph.ops[0].outputs) == (("x", "w", "r", "h"), ("y",))


def test_graphs_inside_nodes_read_what_is_outside(tmp_path: Path) -> None:
    def branch(kind: str, inner: str) -> onnx.GraphProto:
        return helper.make_graph([node(kind, "big w", inner)], inner, [], [value(inner, 2, 3)])

    nodes = [
        node("Relu", "x", "big"),
        node("Relu", "big", "small"),
        node("If", "c", "y", then_branch=branch("Add", "t"), else_branch=branch("Mul", "e")),
        node("Relu", "small", "z"),
    ]
    made = model(
        nodes,
        [X, value("c", kind=TensorProto.BOOL)],
        [Y, value("z", 2, 3)],
        [weight("w", np.ones(3, np.float32))],
    )
    graph = read(tmp_path, made)
    assert graph.ops[4].inputs[:3] == ("c", "big", "w")
    assert {b.name: b.end for b in (to_problem(graph)[i] for i in range(4))} == {
        "big": 5,
        "small": 6,
        "y": 6,
        "z": 6,
    }


def test_names_of_nodes_and_their_modules(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Relu", "a", "b", "same"), node("Relu", "b", "y", "same")]
    assert [op.name for op in read(tmp_path, model(nodes, [X], [Y])).ops] == ["Relu_0", "same", "same_2"]
    assert module_path("/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1"
    assert module_path("block/conv/Conv_3") == "block.conv"
    assert module_path("Conv_3") == ""


@pytest.mark.parametrize(
    ("kind", "dtype", "nbytes"),
    [
        (TensorProto.INT4, "int4", 3),
        (TensorProto.BOOL, "bool", 5),
        (TensorProto.BFLOAT16, "bfloat16", 10),
        (TensorProto.DOUBLE, "float64", 40),
        (TensorProto.FLOAT8E5M2, "float8e5m2", 5),
    ],
)
def test_elements_of_every_width(tmp_path: Path, kind: int, dtype: str, nbytes: int) -> None:
    made = model([node("Cast", "x", "y", to=F)], [value("x", 5, kind=kind)], [value("y", 5)], opset=21)
    tensor = read(tmp_path, made).tensors[0]
    assert (tensor.dtype, tensor.nbytes) == (dtype, nbytes)


def test_weights_in_files_that_are_not_there(tmp_path: Path) -> None:
    missing = TensorProto(name="w", dims=[3, 2**29], data_type=F, data_location=TensorProto.EXTERNAL)
    missing.external_data.add(key="location", value="not/there.bin")
    graph = read(tmp_path, model([node("MatMul", "x w", "y")], [X], [value("y", 2, 2**29)], [missing]))
    assert storage_bytes(graph, Role.CONSTANT) == 3 * 2**31


def test_sparse_weights_are_made_dense(tmp_path: Path) -> None:
    made = model([node("MatMul", "x w", "y")], [X], [value("y", 2, 9)])
    entries, indices = weight("w", np.ones(2, np.float32)), weight("i", np.array([1, 5]))
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(entries, indices, [3, 9]))
    graph = read(tmp_path, made)
    assert storage_bytes(graph, Role.CONSTANT) == 3 * 9 * 4
    assert graph.tensors[1].shape == (3, 9)


def test_functions_of_the_model_are_put_in_place(tmp_path: Path) -> None:
    twice = helper.make_function(
        "mine", "Twice", ["a"], ["b"],
        [node("Relu", "a", "m"), node("Relu", "m", "b")], [helper.make_opsetid("", 17)],
    )  # fmt: skip
    made = model([helper.make_node("Twice", ["x"], ["y"], domain="mine")], [X], [Y], functions=[twice])
    made.opset_import.append(helper.make_opsetid("mine", 1))
    assert kinds(read(tmp_path, made)) == ["Relu", "Relu"]


def test_operators_of_other_domains_keep_the_shapes_they_declare(tmp_path: Path) -> None:
    made = model([helper.make_node("Gelu", ["x"], ["y"], domain="com.example")], [X], [Y])
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    assert kinds(read(tmp_path, made)) == ["com.example.Gelu"]


BAD_MODELS = {
    "ghost": (
        model([node("Add", "x ghost", "y", "adder")], [X], [Y]),
        "node 'adder': found input 'ghost', which nothing makes",
    ),
    "cycle": (
        model([node("Add", "x b", "a", "one"), node("Relu", "a", "b", "two")], [X], [value("b", 2, 3)]),
        "nodes: found a cycle: one → two → one",
    ),
    "order": (
        model([node("Relu", "a", "y", "late"), node("Relu", "x", "a", "early")], [X], [Y]),
        "node 'late': found 'a' read before node 'early' makes it",
    ),
    "output": (model([node("Relu", "x", "a")], [X], [Y]), "output 'y': found no node that makes it"),
    "twice": (model([node("Relu", "x", "y"), node("Neg", "x", "y")], [X], [Y]), ""),
    "contradiction": (
        model([node("Add", "x w", "y")], [X], [Y], [weight("w", np.ones(4, np.float32))]),
        "shape inference: found",
    ),
    "string": (
        model([node("Identity", "x", "y")], [value("x", 2, kind=TensorProto.STRING)],
              [value("y", 2, kind=TensorProto.STRING)]),
        "tensor 'x': found elements of type STRING, expected elements of a fixed size",
    ),
    "sequence": (
        model([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s i", "y")], [X], [Y],
              [weight("i", np.array(0))]),
        "tensor 's': found a sequence, expected a tensor of fixed size",
    ),
    "huge": (
        model([node("Relu", "x", "y")], [value("x", 2**62, 2**62)], [value("y", 2**62, 2**62)]),
        "storage 'x': found 85070591730234615865843651857942052864 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MODELS)
def test_models_that_are_not_sound(tmp_path: Path, name: str) -> None:
    made, message = BAD_MODELS[name]
    assert refusal(tmp_path, made).startswith(f"m.onnx: {message}")


def test_a_model_is_recognised_by_its_frame(tmp_path: Path) -> None:
    files = [*LIGHT.glob("*.onnx"), PATH / "squeezenet.onnx"]
    assert all(OnnxImporter().recognises(b"", file) for file in files)
    assert not any(looks_like_onnx(file) for file in LIGHT.glob("*.pb"))  # tensors, not models
    assert not looks_like_onnx(tmp_path / "nothing")
    whole = (LIGHT / "light_vgg19.onnx").read_bytes()
    cut = tmp_path / "model.bin"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model.bin: found a truncated or damaged model"):
        load(cut)
    for garbage in (
        b"\x08",
        b"\x08\x07",
        b"\x08" * 99,
        b"\x08\x07\x3a\xff\xff\xff\xff\x0fqq",
        b"\x08\x01" * 9999,
    ):
        cut.write_bytes(garbage)
        assert not looks_like_onnx(cut)


def test_what_is_folded_is_said_with_its_bytes(tmp_path: Path) -> None:
    """A weight of 64 × 32 in float16 is cast and transposed before the run: 8,192 bytes for 4,096. One that a
    node also reads as it is stays."""
    nodes = [
        node("Cast", "half", "whole", to=TensorProto.FLOAT),
        node("Transpose", "whole", "turned"),
        node("MatMul", "x turned", "y"),
    ]
    half = weight("half", np.ones((64, 32), np.float16))
    made = model(nodes, [value("x", 2, 32)], [value("y", 2, 64)], [half])
    graph = read(tmp_path, made)
    assert graph.notes == (
        "2 nodes on weights alone folded before the run: 8 KiB (8,192 B) instead of 4 KiB (4,096 B)",
    )
    assert storage_bytes(graph, Role.CONSTANT) == 8192
    assert counted(to_problem(graph)).endswith(graph.notes[0])
    shape = node("Shape", "half", "s")
    kept = model(
        [*nodes, shape],
        [value("x", 2, 32)],
        [value("y", 2, 64), value("half", 64, 32, kind=TensorProto.FLOAT16)],
        [half],
    )
    (note,) = read(tmp_path, kept).notes
    assert note.endswith("8 KiB (8,192 B) instead of 0 B")
    plain = model([node("Relu", "x", "y")], [value("x", 2, 32)], [value("y", 2, 32)], [half])
    assert read(tmp_path, plain).notes == ()
