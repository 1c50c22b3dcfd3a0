"""Managed and unmanaged values: every reason by hand, and what is left to plan."""

from __future__ import annotations

import memplan_examples
import pytest

from memplan_engine import load
from memplan_engine.analysis.managed_values import (
    MANAGED,
    ManagedValue,
    Outside,
    Reason,
    managed_problem,
    managed_values,
    summarise,
)
from memplan_engine.errors import InputError
from memplan_engine.graph import Graph, Op, Role, Storage, Symbol, Tensor, check_graph
from memplan_engine.lifetimes import to_problem
from memplan_engine.planner import make_plan
from memplan_engine.schedule import Schedule


def tensor(name, nbytes, storage=None):
    return Tensor(name, (nbytes,), "uint8", nbytes, storage or name)


def graph_of(ops, sizes, *, outputs, inputs=("x",), constants=(), aliases=(), formulas=(), symbols=()):
    """A checked graph: `sizes` has the bytes of every storage, `aliases` tensor → the storage it shares."""
    aliases, formulas = dict(aliases), dict(formulas)
    home = {**{name: name for name in sizes}, **aliases}
    roles = {home[name]: Role.OUTPUT for name in outputs}
    roles |= {home[name]: Role.INPUT for name in inputs} | {home[name]: Role.CONSTANT for name in constants}
    return check_graph(
        Graph(
            "small",
            tuple(
                Storage(name, nbytes, roles.get(name, Role.ACTIVATION), 0, formulas.get(name, ""))
                for name, nbytes in sizes.items()
            ),
            tuple(tensor(name, sizes[storage], storage) for name, storage in home.items()),
            tuple(ops),
            tuple(inputs),
            tuple(outputs),
            tuple(constants),
            tuple(symbols),
        )
    )


def op(name, inputs, outputs, out_variant=True, kind="", mutates=()):
    return Op(name, kind or name, tuple(inputs), tuple(outputs), tuple(mutates), out_variant=out_variant)


def reasons(graph):
    return {value.tensor: (value.managed, value.reason, value.other) for value in managed_values(graph)}


def test_every_reason_by_hand():
    graph = graph_of(
        [
            op("linear", ["x", "w"], ["a"], kind="aten.linear"),
            op("view", ["a"], ["v"], out_variant=False),
            op("relu", ["v"], ["b"], out_variant=None, kind="aten.relu"),
            op("conv", ["b"], ["c"], out_variant=False, kind="aten.convolution"),
            op("nonzero", ["c"], ["d"]),
            op("none", ["d"], ["e"]),
            op("sum", ["e", "d"], ["y"]),
        ],
        {"x": 8, "w": 32, "a": 16, "b": 24, "c": 40, "d": 48, "e": 0, "y": 4},
        outputs=["y"],
        constants=["w"],
        aliases={"v": "a"},
        formulas={"d": "8*u0"},
        symbols=[Symbol("u0", 0, None, None)],
    )
    assert reasons(graph) == {
        "x": (False, Reason.GRAPH_INPUT, ""),
        "w": (False, Reason.CONSTANT, ""),
        "a": (True, Reason.OUT_VARIANT, "aten.linear"),
        "b": (True, Reason.UNKNOWN_VARIANT, "aten.relu"),
        "c": (False, Reason.NO_OUT_VARIANT, "aten.convolution"),
        "d": (False, Reason.DATA_DEPENDENT, "u0"),
        "e": (False, Reason.EMPTY, ""),
        "y": (False, Reason.GRAPH_OUTPUT, "y"),
        "v": (True, Reason.ALIAS, "a"),
    }
    assert [value.tensor for value in managed_values(graph)] == [tensor.name for tensor in graph.tensors]
    explained = {value.tensor: value.explanation for value in managed_values(graph)}
    assert explained == {
        "x": "it belongs to the caller",
        "w": "it is a constant, stored separately",
        "a": "its op has an out variant (aten.linear)",
        "b": "its op is assumed to have an out variant (aten.relu)",
        "c": "its op has no out variant and allocates its result itself (aten.convolution)",
        "d": "its size depends on the data (u0)",
        "e": "it has no bytes",
        "y": "the graph returns it",
        "v": "it shares the storage of a, planned with it",
    }
    left = managed_problem(graph)
    assert left.problem.names == ("a", "b")
    # a is read through its view by the third op, b by the fourth; one step an op, seven in all.
    assert (left.problem.start.tolist(), left.problem.end.tolist(), left.problem.steps) == ([0, 2], [3, 4], 7)
    assert left.outside == (
        Outside(Reason.GRAPH_INPUT, 1, 8),
        Outside(Reason.CONSTANT, 1, 32),
        Outside(Reason.GRAPH_OUTPUT, 1, 4),
        Outside(Reason.NO_OUT_VARIANT, 1, 40),
        Outside(Reason.DATA_DEPENDENT, 1, 48),
        Outside(Reason.EMPTY, 1, 0),
    )
    assert left.outside_bytes == 132


def test_several_outputs_are_a_container():
    graph = graph_of(
        [op("one", ["x"], ["a"]), op("two", ["a"], ["b"])], {"x": 8, "a": 16, "b": 16}, outputs=["a", "b"]
    )
    assert reasons(graph)["a"] == (False, Reason.OUTPUT_CONTAINER, "a")
    assert reasons(graph)["b"] == (False, Reason.OUTPUT_CONTAINER, "b")
    assert len(managed_problem(graph).problem) == 0


@pytest.mark.parametrize(
    ("outputs", "reason", "explanation"),
    [
        (["v"], Reason.GRAPH_OUTPUT, "it shares its storage with v: the graph returns v"),
        (
            ["v", "b"],
            Reason.OUTPUT_CONTAINER,
            "it shares its storage with v: v is part of the container that the graph returns",
        ),
        (["v", "a"], Reason.OUTPUT_CONTAINER, "it is part of the container that the graph returns"),
    ],
)
def test_the_storage_of_what_is_returned_goes_with_it(outputs, reason, explanation):
    graph = graph_of(
        [op("one", ["x"], ["a"]), op("view", ["a"], ["v"]), op("two", ["v"], ["b"])],
        {"x": 8, "a": 16, "b": 16},
        outputs=outputs,
        aliases={"v": "a"},
    )
    values = {value.tensor: value for value in managed_values(graph)}
    assert (values["a"].reason, values["a"].explanation) == (reason, explanation)
    assert values["v"] == ManagedValue("v", False, Reason.ALIAS, 0, "a")
    assert values["v"].explanation == "it shares the storage of a, unmanaged with it"
    assert summarise(values.values())[1] == Outside(reason, 1 + ("b" in outputs), 16 * (1 + ("b" in outputs)))


def test_views_and_writes_in_place_follow_whoever_made_the_storage():
    graph = graph_of(
        [
            op("conv", ["x"], ["a"], out_variant=False),
            op("relu_", ["a"], ["r"], mutates=["a"]),
            op("view_of_x", ["x"], ["u"]),
            op("sum", ["r", "u"], ["y"]),
        ],
        {"x": 8, "a": 16, "y": 4},
        outputs=["y"],
        aliases={"r": "a", "u": "x"},
    )
    assert reasons(graph)["r"] == (False, Reason.ALIAS, "a")
    assert reasons(graph)["u"] == (False, Reason.ALIAS, "x")


def test_only_symbols_without_a_hint_make_a_size_unknown():
    def reason(formula):
        symbols = [Symbol("u0", 0, None, None), Symbol("u01", 1, 8, 2)]
        graph = graph_of(
            [op("one", ["x"], ["a"]), op("two", ["a"], ["y"])],
            {"x": 8, "a": 16, "y": 4},
            outputs=["y"],
            formulas={"a": formula},
            symbols=symbols,
        )
        return reasons(graph)["a"][1]

    assert reason("4*u01") is Reason.OUT_VARIANT
    assert reason("Max(1, 4*u0*u01)") is Reason.DATA_DEPENDENT
    assert reason("") is Reason.OUT_VARIANT


def test_the_schedule_and_the_alignment_are_those_given():
    graph = graph_of(
        [op("one", ["x"], ["a"]), op("two", ["x"], ["b"]), op("three", ["a", "b"], ["y"])],
        {"x": 8, "a": 16, "b": 24, "y": 4},
        outputs=["y"],
    )
    left = managed_problem(graph, Schedule((0, 0, 1), 2), alignment=128)
    assert (left.problem.start.tolist(), left.problem.end.tolist()) == ([0, 0], [2, 2])
    assert left.problem.alignment.tolist() == [128, 128]
    assert left.problem.origin.graph is graph
    with pytest.raises(InputError):
        managed_problem(graph, alignment=0)


@pytest.mark.parametrize("name", ["gpt2.json", "resnet50.json", "teaching_view.json", "squeezenet.onnx"])
def test_real_graphs_lose_exactly_what_is_returned_when_nothing_is_known_of_out_variants(name):
    graph = load(memplan_examples.PATH / name)
    values = managed_values(graph)
    assert len(values) == len(graph.tensors)
    whole, left = to_problem(graph), managed_problem(graph)
    unmanaged = {value.tensor for value in values if not value.managed and value.nbytes}
    returned = {storage.name for storage in graph.storages if storage.role is Role.OUTPUT}
    has_unknown_only = all(op.out_variant is None for op in graph.ops)
    if has_unknown_only:
        assert set(whole.names) - set(left.problem.names) == returned
    assert sum(value.nbytes for value in values if value.managed) == left.problem.total_bytes
    inside = {value.tensor for value in values if value.reason in MANAGED}
    assert not inside & unmanaged
    total = sum(storage.nbytes for storage in graph.storages)
    assert left.problem.total_bytes + left.outside_bytes == total
    assert make_plan(left.problem).bound.nbytes <= make_plan(whole).bound.nbytes


torch_operators = pytest.importorskip("memplan_engine.torch_capture.torch_operators")


def test_out_overloads_are_matched_by_name_and_type():
    torch = pytest.importorskip("torch")
    aten = torch.ops.aten
    known = {
        aten.addmm.default: True,
        aten.add.Tensor: True,
        aten.cat.default: True,
        # add.Scalar has no native overload of its own: add.out takes a tensor.
        aten.add.Scalar: False,
        # What PyTorch generates computes and then copies.
        aten.convolution.default: False,
        aten.native_layer_norm.default: False,
        aten.embedding.default: False,
        # Several results, each with an argument to write into.
        aten.topk.default: True,
        # Views and writes in place make no memory.
        aten.view.default: False,
        aten.relu_.default: False,
    }
    assert {target: torch_operators.out_variant_of(target) for target in known} == known
    assert torch_operators.out_variant_of(torch.ops.higher_order.cond) is False
    assert torch_operators.out_variant_of(len) is None


def test_an_operator_that_is_said_to_have_an_out_variant_really_writes_there():
    torch = pytest.importorskip("torch")
    left, right, out = torch.ones(2, 3), torch.full((3, 4), 2.0), torch.zeros(2, 4)
    assert torch_operators.out_variant_of(torch.ops.aten.mm.default)
    address = out.data_ptr()
    torch.ops.aten.mm.out(left, right, out=out)
    assert out.data_ptr() == address
    assert out.tolist() == [[6.0] * 4] * 2
