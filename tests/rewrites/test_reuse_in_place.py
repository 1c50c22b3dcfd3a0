"""In-place writes: what is merged, and each reason why not, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memplan_engine.graph import Graph, Role, Symbol
from memplan_engine.lifetimes import lifetimes, to_problem
from memplan_engine.rewrites.reuse import Kept, Reason, reused_problem, write_in_place
from memplan_engine.rewrites.reuse.kinds import ELEMENTWISE, has_in_place_form, is_concat, is_elementwise
from memplan_engine.schedule import Schedule, sequential
from tests.rewrites.reuse_graphs import Builder


def homes(graph: Graph) -> dict[str, str]:
    return {tensor.name: tensor.storage for tensor in graph.tensors}


def kept_reason(graph: Graph, schedule: Schedule | None = None) -> tuple[Reason, str, str]:
    """Why the last elementwise op is left alone, its input that came nearest, and what is in the way."""
    reused = write_in_place(graph, schedule)
    last: Kept = reused.kept[-1]
    assert last.op not in {rewrite.op for rewrite in reused.rewrites}
    return last.reason, last.tensor, last.other


def chain() -> Builder:
    net = Builder()
    net.input("x", 4)
    net.op("aten.conv2d", "x", "a", 4)
    return net


def test_a_chain_becomes_one_storage() -> None:
    net = chain()
    net.op("aten.relu.default", "a", "b", 4)
    net.op("aten.gelu", "b", "c", 4)
    net.op("aten.linear", "c", "d", 4)
    graph = net.graph("d")
    reused = write_in_place(graph)
    assert homes(reused.graph) == {"x": "x", "a": "a", "b": "a", "c": "a", "d": "d"}
    assert [op.mutates for op in reused.graph.ops] == [(), ("a",), ("b",), ()]
    assert [(r.op, r.tensor, r.output, r.nbytes, r.step) for r in reused.in_place] == [
        ("b!", "a", "b", 16, 1),
        ("c!", "b", "c", 16, 2),
    ]
    assert lifetimes(reused.graph, sequential(graph))["a"] == (0, 4)
    assert reused_problem(reused).size.tolist() == [16, 16]
    assert to_problem(graph).size.tolist() == [16, 16, 16, 16]
    assert reused.kept == ()


def test_an_output_of_the_graph_may_lie_in_what_it_was_made_of() -> None:
    net = chain()
    net.op("Relu", "a", "y", 4)
    reused = write_in_place(net.graph("y"))
    (storage,) = [storage for storage in reused.graph.storages if storage.name == "a"]
    assert storage.role is Role.OUTPUT
    assert homes(reused.graph)["y"] == "a"


def test_of_several_inputs_the_first_that_will_do_is_taken() -> None:
    net = chain()
    net.op("aten.conv2d", "x", "b", 4)
    net.op("aten.add", "x a b", "c", 4)
    assert write_in_place(net.graph("c")).in_place[0].tensor == "a"


def test_a_broadcast_operand_is_read_and_no_more() -> None:
    net = chain()
    net.op("aten.conv2d", "x", "row", 1)
    net.op("ADD", "row a", "y", 4)
    assert write_in_place(net.graph("y")).in_place[0].tensor == "a"


def test_the_same_operand_twice_is_element_by_element_still() -> None:
    net = chain()
    net.op("aten.mul", "a a", "y", 4)
    assert len(write_in_place(net.graph("y")).in_place) == 1


def test_a_view_that_shows_the_whole_storage_will_do() -> None:
    net = chain()
    net.view("a", "v", 4)
    net.op("aten.relu", "v", "y", 4)
    assert write_in_place(net.graph("y")).in_place[0].tensor == "v"


def test_dense_strides_that_agree_will_do() -> None:
    net = Builder()
    net.input("x", 2, 3)
    net.op("aten.conv2d", "x", "a", 2, 3, strides=(1, 2))
    net.op("aten.relu", "a", "y", 2, 3, strides=(1, 2))
    assert len(write_in_place(net.graph("y")).in_place) == 1


def read_later(net: Builder) -> Graph:
    net.op("aten.relu", "a", "b", 4)
    net.op("aten.linear", "a b", "y", 4)
    return net.graph("y")


def view_read_later(net: Builder) -> Graph:
    net.view("a", "v", 2)
    net.op("aten.relu", "a", "b", 4)
    net.op("aten.linear", "v b", "y", 4)
    return net.graph("y")


def of_the_input(net: Builder) -> Graph:
    net.op("aten.relu", "x", "b", 4)
    return net.graph("b", "a")


def of_a_constant(net: Builder) -> Graph:
    net.constant("w", 4)
    net.op("aten.relu", "w", "b", 4)
    return net.graph("b", "a")


def of_an_output(net: Builder) -> Graph:
    net.op("aten.relu", "a", "b", 4)
    return net.graph("a", "b")


def of_a_returned_view(net: Builder) -> Graph:
    net.view("a", "v", 4)
    net.op("aten.relu", "a", "b", 4)
    return net.graph("v", "b")


def broadcast(net: Builder) -> Graph:
    net.op("aten.add", "a a", "b", 2, 4)
    return net.graph("b")


def wider(net: Builder) -> Graph:
    net.op("aten.eq", "a a", "b", 4, dtype="bool", nbytes=4, storage_nbytes=4)
    return net.graph("b")


def turned(net: Builder) -> Graph:
    net.op("aten.conv2d", "a", "c", 2, 3)
    net.op("aten.relu", "c", "d", 2, 3, strides=(1, 2))
    return net.graph("d")


def half_of_it(net: Builder) -> Graph:
    net.view("a", "v", 2, at=2)
    net.op("aten.relu", "v", "b", 2)
    return net.graph("b")


def expanded(net: Builder) -> Graph:
    net.op("aten.conv2d", "a", "c", 6)
    net.view("c", "v", 2, 3, strides=(0, 1), kind="aten.expand")
    net.op("aten.relu", "v", "b", 2, 3)
    return net.graph("b")


def padded(net: Builder) -> Graph:
    net.op("aten.conv2d", "a", "c", 4, storage_nbytes=32)
    net.op("aten.relu", "c", "d", 4)
    return net.graph("d")


def more_aligned(net: Builder) -> Graph:
    net.op("aten.relu", "a", "b", 4, alignment=128)
    return net.graph("b")


def crossed(net: Builder) -> Graph:
    net.op("aten.conv2d", "a", "c", 2, 2)
    net.view("c", "t", 2, 2, strides=(1, 2), kind="aten.transpose")
    net.op("aten.add", "c t", "d", 2, 2)
    return net.graph("d")


def in_place_already(net: Builder) -> Graph:
    net.op("aten.relu_", "a", "b", 4, storage="a", mutates=("a",))
    return net.graph("b")


def without_out_variant(net: Builder) -> Graph:
    net.op("Relu", "a", "b", 4, out_variant=False)
    return net.graph("b")


def into_a_part(net: Builder) -> Graph:
    net.op("aten.relu", "a", "b", 4, storage_nbytes=32)
    return net.graph("b")


def without_inputs(net: Builder) -> Graph:
    net.op("aten.exp", "", "b", 4)
    return net.graph("a", "b")


@pytest.mark.parametrize(
    ("make", "reason", "tensor", "other"),
    [
        (read_later, Reason.READ_LATER, "a", "y!"),
        (view_read_later, Reason.VIEW_READ_LATER, "a", "y!"),
        (of_the_input, Reason.INPUT, "x", ""),
        (of_a_constant, Reason.CONSTANT, "w", ""),
        (of_an_output, Reason.RETURNED, "a", ""),
        (of_a_returned_view, Reason.RETURNED, "a", ""),
        (broadcast, Reason.SHAPE, "a", ""),
        (wider, Reason.ELEMENT_SIZE, "a", ""),
        (turned, Reason.STRIDES, "c", ""),
        (half_of_it, Reason.WHOLE, "v", ""),
        (expanded, Reason.STRIDES, "v", ""),
        (padded, Reason.WHOLE, "c", ""),
        (more_aligned, Reason.ALIGNMENT, "a", ""),
        (crossed, Reason.TWICE, "c", "t"),
        (in_place_already, Reason.ALREADY, "", ""),
        (without_out_variant, Reason.NO_OUT_VARIANT, "", ""),
        (into_a_part, Reason.PART_OF_STORAGE, "", ""),
        (without_inputs, Reason.NO_TENSOR, "", ""),
    ],
)
def test_each_reason(make: Any, reason: Reason, tensor: str, other: str) -> None:
    graph = make(chain())
    assert kept_reason(graph) == (reason, tensor, other)
    op = write_in_place(graph).kept[-1].op
    unchanged = write_in_place(graph).graph
    (output,) = next(o.outputs for o in graph.ops if o.name == op)
    assert homes(unchanged)[output] == homes(graph)[output]


def test_another_op_of_the_same_step_stands_in_the_way() -> None:
    net = chain()
    net.op("aten.relu", "a", "b", 4)
    net.op("aten.linear", "a", "c", 4)
    net.op("aten.relu", "b", "d", 4)
    graph = net.graph("c", "d")
    together = Schedule((0, 1, 1, 2), 3)
    found = write_in_place(graph, together)
    assert [(k.reason, k.tensor, k.other) for k in found.kept] == [(Reason.SAME_STEP, "a", "c!")]
    assert [rewrite.op for rewrite in found.in_place] == ["d!"]
    # One after the other, the reader first, nothing stands in the way; relu first, its reader comes later.
    reader_first = write_in_place(graph, Schedule((0, 2, 1, 3), 4))
    assert [rewrite.op for rewrite in reader_first.in_place] == ["b!", "d!"]
    assert [k.reason for k in write_in_place(graph).kept] == [Reason.READ_LATER]


def test_one_of_two_ops_gets_the_storage() -> None:
    net = chain()
    net.op("aten.relu", "a", "b", 4)
    net.op("aten.neg", "a", "c", 4)
    net.op("aten.linear", "b c", "y", 4)
    graph = net.graph("y")
    assert [rewrite.op for rewrite in write_in_place(graph).in_place] == ["c!"]
    assert write_in_place(graph, Schedule((0, 1, 1, 2), 3)).in_place == ()


def test_a_view_of_the_first_tensor_is_seen_through_a_chain() -> None:
    """b lies in a; v is a view of b that is read after c: c must not lie there."""
    net = chain()
    net.op("aten.relu", "a", "b", 4)
    net.view("b", "v", 2)
    net.op("aten.neg", "b", "c", 4)
    net.op("aten.linear", "v c", "y", 4)
    graph = net.graph("y")
    assert kept_reason(graph) == (Reason.VIEW_READ_LATER, "b", "y!")
    assert homes(write_in_place(graph).graph) | {"y": "y"} == {
        "x": "x", "a": "a", "b": "a", "v": "a", "c": "c", "y": "y",
    }  # fmt: skip


def test_sizes_that_agree_at_the_hints_only_do_not_count() -> None:
    net = chain()
    net.op("aten.relu", "a", "b", 4, formulas=("n",))
    graph = replace(net.graph("b"), symbols=(Symbol("n", 1, 9, 4),))
    assert kept_reason(graph) == (Reason.SYMBOLIC, "a", "")


def test_sizes_of_the_same_formula_do() -> None:
    net = chain()
    net.op("aten.conv2d", "x", "c", 4, formulas=("n",), formula="4*n")
    net.op("aten.relu", "c", "d", 4, formulas=("n",), formula="4*n")
    graph = replace(net.graph("d"), symbols=(Symbol("n", 1, 9, 4),))
    assert [rewrite.op for rewrite in write_in_place(graph).in_place] == ["d!"]


def test_a_transpose_in_a_graph_without_strides_has_an_unknown_layout() -> None:
    net = chain()
    net.op("aten.conv2d", "x", "c", 4)
    net.view("c", "t", 4, kind="aten.transpose.int")
    net.op("aten.add", "t x", "d", 4)
    assert kept_reason(net.graph("d")) == (Reason.STRIDES, "t", "")


def test_the_alignment_of_the_storage_that_stays_must_do_for_both() -> None:
    net = chain()
    net.op("aten.conv2d", "x", "c", 4, alignment=256)
    net.op("aten.relu", "c", "d", 4, alignment=128)
    assert [rewrite.op for rewrite in write_in_place(net.graph("d")).in_place] == ["d!"]


def test_views_that_look_like_ops_are_not_counted() -> None:
    net = chain()
    net.view("a", "v", 4, kind="aten.dropout")
    net.op("aten.relu", "v", "y", 4)
    reused = write_in_place(net.graph("y"))
    assert (len(reused.in_place), reused.kept) == (1, ())


def test_kinds_of_all_sources_are_known() -> None:
    for kind in ("aten.add", "aten.add.Tensor", "aten.add_", "Add", "ADD", "aten.__and__.Tensor", "LeakyRelu",
                 "HARD_SWISH", "relu", "aten.threshold_backward.default", "Max", "Sum", "RELU6"):  # fmt: skip
        assert is_elementwise(kind), kind
    for kind in ("aten.sum", "SUM", "aten.max", "aten.mean.dim", "ReduceSum", "aten.softmax", "MatMul",
                 "aten.conv2d", "aten.cumsum", "LayerNormalization", "aten.view"):  # fmt: skip
        assert not is_elementwise(kind), kind
    for kind in ("aten.cat.default", "Concat", "CONCATENATION", "concat"):
        assert is_concat(kind), kind
    assert not is_concat("aten.stack")


def test_torch_calls_the_same_aten_ops_pointwise() -> None:
    """Against torch's own tags: an op of the table that torch has is tagged, or listed here with a reason."""
    torch = pytest.importorskip("torch")
    untagged = {
        "dropout", "hardswish", "hardswish_backward", "hardsigmoid_backward", "hardtanh_backward", "multiply",
        "divide", "subtract", "negative", "less", "less_equal", "greater", "greater_equal", "not_equal",
        "elu_backward", "leaky_relu_backward", "mish_backward", "softplus_backward", "log_sigmoid", "prelu",
        "__and__", "__or__", "squared_difference", "equal",
    }  # fmt: skip
    missing = set()
    for name in dir(torch.ops.aten):
        plain = name.replace("_", "").lower()
        if name.startswith("_foreach") or plain not in ELEMENTWISE or (name.endswith("_") and name[0] != "_"):
            continue
        packet = getattr(torch.ops.aten, name)
        tags = [torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()]
        if not any(tags):
            missing.add(name)
    assert missing <= untagged, missing - untagged


def test_an_op_without_out_variant_but_with_a_form_in_place_writes_over_its_input() -> None:
    net = Builder()
    net.op("aten.conv2d", "", "a", 4)
    net.op("aten.relu", "a", "b", 4, out_variant=False)
    assert [rewrite.op for rewrite in write_in_place(net.graph("b")).in_place] == ["b!"]


KINDS = ["relu", "selu", "masked_fill", "prelu", "rsub", "hardswish_backward", "where", "maximum", "softplus"]


@pytest.mark.parametrize("kind", KINDS)
def test_torch_has_the_forms_in_place_that_we_count_on(kind: str) -> None:
    torch = pytest.importorskip("torch")
    assert has_in_place_form(f"aten.{kind}") == hasattr(torch.ops.aten, f"{kind}_")
    assert not has_in_place_form("Relu")
