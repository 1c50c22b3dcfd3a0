"""Names as people know them, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memplan_engine.analysis.buffer_names import (
    buffer_names,
    join_numbers,
    module_paths,
    op_names,
    weight_names,
)
from memplan_engine.graph import Graph, Op, Phase, Role, Storage, Tensor
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import make_problem


def make_graph(*ops, outputs=()):
    """A graph of ops as (name, kind, module, phase, outputs), each reading the one before."""
    tensors, made, before = [], [], ()
    for name, kind, module, phase, results in ops:
        tensors += results
        made.append(Op(name, kind, before, tuple(results), module=module, phase=phase))
        before = tuple(results[:1])
    return Graph(
        "small",
        tuple(Storage(name, 64, Role.OUTPUT if name in outputs else Role.ACTIVATION) for name in tensors),
        tuple(Tensor(name, (16,), "float32", 64, name) for name in tensors),
        tuple(made),
        (),
        tuple(outputs),
    )


def test_module_then_op_then_its_number():
    graph = make_graph(
        ("addmm", "aten.addmm", "model.h.0.mlp", None, ["addmm"]),
        ("mul", "aten.mul", "model.h.0.mlp", None, ["mul"]),
        ("mul_1", "aten.mul", "model.h.0.mlp", None, ["mul_1"]),
        ("mul_2", "aten.mul", "model.h.1.mlp", None, ["mul_2"]),
        ("head", "Gemm", "lm_head", None, ["head"]),
    )
    problem = to_problem(graph)
    assert op_names(problem) == {
        "addmm": "h.0.mlp · addmm",
        "mul": "h.0.mlp · mul",
        "mul_1": "h.0.mlp · mul.2",
        "mul_2": "h.1.mlp · mul",
        "head": "lm_head · Gemm",
    }
    assert buffer_names(problem) == tuple(op_names(problem).values())
    assert op_names(problem) is op_names(problem)


def test_passes_are_told_apart_and_results_of_one_op_are_numbered():
    graph = make_graph(
        ("norm", "aten.native_layer_norm", "ln", Phase.FORWARD, ["norm.0", "norm.1"]),
        ("norm_b", "aten.native_layer_norm", "ln", Phase.BACKWARD, ["norm_b"]),
        ("add_", "aten.add_", "ln", Phase.OPTIMIZER, ["step"]),
        ("loss", "aten.sum", "", Phase.FORWARD, ["loss"]),
    )
    assert buffer_names(to_problem(graph)) == (
        "ln · native_layer_norm[0]",
        "ln · native_layer_norm[1]",
        "ln · native_layer_norm (backward)",
        "ln · add_ (optimizer)",
        "loss",
    )


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        (["bert.layer.0.out", "bert.pool"], ["layer.0.out", "pool"]),
        # A second model below the root has a part of the same name.
        (["bert.pool", "bert.layer.0", "pool"], ["bert.pool", "bert.layer.0", "pool"]),
        # Numbers alone say nothing.
        (["net.0", "net.1"], ["net.0", "net.1"]),
        (["a.x", "b.y"], ["a.x", "b.y"]),
        (["model"], ["model"]),
    ],
)
def test_the_segment_that_all_begin_with_is_left_out_where_nothing_gets_lost(modules, shown):
    graph = make_graph(*((f"op{i}", "aten.mul", each, None, [f"t{i}"]) for i, each in enumerate(modules)))
    paths = module_paths(graph)
    assert [".".join(paths[each]) for each in modules] == shown


def test_a_number_stands_with_what_it_counts():
    assert join_numbers(["h", "0", "mlp", "3", "1"]) == ("h.0", "mlp.3.1")
    assert join_numbers(["0", "x"]) == ("0", "x")


def test_buffers_of_a_list_keep_their_names():
    problem = make_problem([0], [1], [8], names=["a/b"])
    assert buffer_names(problem) == ("a/b",)
    assert op_names(problem) == {}


def test_weights_have_the_path_that_export_flattened():
    """The module of a reader tells where "_" was a dot; what no module explains keeps its name."""
    graph = make_graph(
        ("norm", "aten.layer_norm", "model.h.0.ln_1", None, ["norm"]),
        ("heads", "aten.mul", "model.h.0", None, ["heads"]),
        ("head", "aten.mm", "lm_head", None, ["head"]),
    )
    weights = {
        "p_model_h_0_ln_1_weight": ("norm", "h.0.ln_1.weight"),
        "p_model_h_0_ln_scale": ("heads", "h.0.ln_scale"),
        "b_model_rope_inv_freq": ("heads", None),
        "p_model_h_0_ln_1_weight.exp_avg": (None, "h.0.ln_1.weight.exp_avg"),
        "p_elsewhere_weight": ("head", None),
        "scale": ("head", None),
    }
    read = {op.name: [name for name, (reader, _) in weights.items() if reader == op.name] for op in graph.ops}
    ops = [replace(op, inputs=(*op.inputs, *read[op.name])) for op in graph.ops]
    graph = replace(graph, ops=tuple(ops), constants=tuple(weights))
    assert weight_names(graph) == {name: shown for name, (_, shown) in weights.items() if shown}
