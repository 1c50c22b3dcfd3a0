"""The modules that run one after the other."""

from memplan_engine.analysis import layers as subject
from memplan_engine.analysis.layers import find_layers
from memplan_engine.graph import Op
from memplan_engine.schedule import Schedule, sequential
from tests.support.graphs import make_graph

MODULES = ["net.wte", "", "net.h.0.ln", "net.h.0.mlp", "net.h.0", "net.h.1.mlp", "net", "head"]


def graph_of(modules):
    names = [f"t{i}" for i in range(len(modules))]
    ops = [Op(f"op{i}", "op", (), (names[i],), module=module) for i, module in enumerate(modules)]
    return make_graph(ops, dict.fromkeys(names, 8))


def rows(modules, schedule=None):
    graph = graph_of(modules)
    found = find_layers(graph, schedule or sequential(graph))
    return [[(layer.label, layer.start, layer.end) for layer in depth] for depth in found]


def test_layers_at_every_depth():
    """By hand: "net" is what all longer paths share; an op without a module goes with the one before."""
    assert rows(MODULES) == [
        [("wte", 0, 2), ("h", 2, 6), ("net", 6, 7), ("head", 7, 8)],
        [("wte", 0, 2), ("h.0", 2, 5), ("h.1", 5, 6), ("net", 6, 7), ("head", 7, 8)],
        [
            *[("wte", 0, 2), ("h.0.ln", 2, 3), ("h.0.mlp", 3, 4), ("h.0", 4, 5)],
            *[("h.1.mlp", 5, 6), ("net", 6, 7), ("head", 7, 8)],
        ],
    ]


def test_steps_with_several_ops_and_none():
    """The first op of a step that has a module names it."""
    schedule = Schedule((0, 0, 2, 2), 4)
    assert rows(["", "a", "b", "a"], schedule) == [[("a", 0, 2), ("b", 2, 4)]]


def test_one_module_or_none_is_no_ribbon():
    assert rows(["net.a", "net.a"]) == []
    assert rows(["", ""]) == []
    assert rows([]) == []


def test_what_nobody_could_read_is_left_out(monkeypatch):
    monkeypatch.setattr(subject, "MOST_LAYERS", 5)
    assert [len(depth) for depth in rows(MODULES)] == [4, 5]
