"""What is live at a step as a tree: by hand, against a plain sum, and on the examples."""

from __future__ import annotations

from collections import Counter

import memplan_examples
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import load
from memplan_engine.analysis.peak import contents_of, find_peak
from memplan_engine.analysis.peak_parts import peak_parts
from memplan_engine.analysis.peak_tree import (
    GROUPINGS,
    category_of_storage,
    difference_tree,
    grouping,
    groupings_of,
    peak_tree,
)
from memplan_engine.graph import Graph, Op, Phase, Role, Storage, Tensor
from memplan_engine.lifetimes import to_problem
from memplan_engine.problem import make_problem
from memplan_engine.profile import bytes_at
from memplan_engine.reporters.peak_report import headline


def load_example(name):
    """The example of that name, as a graph or a list."""
    (path,) = memplan_examples.PATH.glob(f"{name}.*")
    return load(path)


def lines_of(tree, depth=0):
    """The tree as (depth, label, bytes)."""
    return [
        line
        for child in tree.children
        for line in [(depth, child.label, child.nbytes), *lines_of(child, depth + 1)]
    ]


NAMES = ["enc.0.a", "enc.0.b", "enc.1.a", "dec/x", "free"]
LISTED = make_problem([0, 0, 0, 0, 2], [3, 3, 3, 3, 3], [4, 8, 16, 2, 1], names=NAMES)


def test_a_list_is_grouped_by_the_beginning_of_its_names():
    assert lines_of(peak_tree(find_peak(LISTED), LISTED)) == [
        (0, "enc.1", 16),
        (1, "enc.1.a", 16),
        (0, "enc.0", 12),
        (1, "enc.0.b", 8),
        (1, "enc.0.a", 4),
        (0, "dec", 2),
        (1, "dec/x", 2),
        (0, "free", 1),
    ]


def test_a_difference_has_what_came_and_what_went():
    problem = make_problem([0, 0, 2], [2, 4, 4], [4, 8, 16], names=["went", "stayed", "came"])
    tree = difference_tree(problem, 3, 0)
    assert (tree.nbytes, lines_of(tree)) == (12, [(0, "came", 16), (0, "went", -4)])
    assert lines_of(difference_tree(problem, 1, 0)) == []


GPT2 = to_problem(load_example("gpt2"))


def test_gpt2_by_module_line_op_and_category():
    peak = find_peak(GPT2)
    mib = 2**20
    assert [line for line in lines_of(peak_tree(peak, GPT2)) if line[0] < 3] == [
        (0, "h.0", 51 * mib),
        (1, "mlp", 48 * mib),
        (2, "act", 36 * mib),
        (2, "c_fc", 12 * mib),
        (1, "add", 3 * mib),
    ]
    tops = {by: [(n.label, n.nbytes // mib) for n in peak_tree(peak, GPT2, by).children] for by in GROUPINGS}
    lines = [("activations.py:66", 36), ("pytorch_utils.py:119", 12), ("modeling_gpt2.py:282", 3)]
    assert tops["line"] == lines
    assert tops["op"] == [("mul", 24), ("addmm", 12), ("pow", 12), ("add", 3)]
    assert tops["category"] == [("activations", 51)]


def test_the_sentence_opens_what_says_nothing_and_takes_layers_together():
    first, second = peak_parts(find_peak(GPT2), GPT2)
    assert (first.label, first.nbytes, first.line) == ("h.0.mlp", 48 * 2**20, "activations.py:66")
    assert (second.label, second.nbytes, second.layers) == ("h.0 · add", 3 * 2**20, 1)
    training = to_problem(load_example("bert_training_default"))
    parts = peak_parts(find_peak(training), training)
    assert [(part.label, part.layers) for part in parts] == [
        ("encoder.layer.*.intermediate", 4),
        ("encoder.layer.*.attention", 4),
        ("encoder.layer.*.output", 4),
    ]


def sequence(*modules, depth=64):
    """The problem of a graph that keeps the result of each of the (module, kind), of `depth` bytes, to the
    end."""
    names = [f"t{place}" for place in range(len(modules))]
    ops = [
        Op(name, f"aten.{kind}", tuple(names[:place][-1:]), (name,), module=module)
        for place, (name, (module, kind)) in enumerate(zip(names, modules, strict=True))
    ]
    storages = tuple(Storage(name, depth, Role.OUTPUT) for name in names)
    tensors = tuple(Tensor(name, (depth // 4,), "float32", depth, name) for name in names)
    return to_problem(Graph("net", storages, tensors, tuple(ops), (), tuple(names)))


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        # What stands first in a sequence is no layer of its own kind.
        (
            [("net.0", "embedding"), *((f"net.{layer}.fc", "linear") for layer in (1, 2, 3)), ("head", "mm")],
            [("net.*", 192, 3), ("net.0", 64, 1), ("head", 64, 1)],
        ),
        # Like a third: the first block has a shortcut, the last one no norm.
        (
            [("n.0.cut", "conv2d"), ("n.0.ln", "ln"), ("n.1.ln", "ln"), ("n.1.fc", "mm"), ("n.2.fc", "mm"),
             ("o.x", "mm")],
            [("n.*", 320, 3), ("o", 64, 1)],
        ),
        # Two norms in each of two layers, and two parts of one layer.
        (
            [*((f"h.{layer}.ln_{each}", "ln") for layer in (0, 1) for each in (1, 2)), ("h.1.fc", "mm")],
            [("h.*.ln_*", 256, 2), ("h.1.fc", 64, 1)],
        ),
        ([("fire.a1x1", "conv2d"), ("fire.a3x3", "conv2d"), ("x", "mm")], [("a*x*", 128, 1), ("x", 64, 1)]),
    ],
)  # fmt: skip
def test_layers_that_are_taken_together_are_of_one_kind(modules, told):
    problem = sequence(*modules)
    parts = peak_parts(find_peak(problem), problem)
    assert [(part.label, part.nbytes, part.layers) for part in parts] == told


def test_the_sentence_says_what_its_figure_is_of():
    listed = make_problem([0, 3], [2, 5], [5, 7], names=["a", "b"])
    assert headline(find_peak(listed), listed) == "Peak 7 B at step 3: b 7 B (100 %)"
    assert headline(contents_of(listed, 2), listed, False) == "0 B live at step 2"
    # Of a path of 300 letters the end, where names differ.
    path = ".".join(f"layers.{number}.submodule_of_a_model" for number in range(11))
    deep = make_problem([0], [1], [7], names=[path])
    told = headline(find_peak(deep), deep)
    assert told.startswith("Peak 7 B at step 0: …")
    assert told.endswith(f"{path[-60:]} 7 B (100 %)")
    assert len(told) < 130
    recorded = load_example("cuda_snapshot")
    assert headline(find_peak(recorded), recorded).startswith("Recorded peak 1.35 GiB at step 1,951: ")
    assert headline(find_peak(GPT2), GPT2).startswith("Graph peak 51 MiB at h.0.mlp.act · mul.2 (step 44): ")


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("name", ["gpt2", "gpt2_training_step", "squeezenet", "unet_training"])
def test_groups_for_the_browser_are_those_of_the_tree(name, by):
    loaded = load_example(name)
    problem = to_problem(loaded) if isinstance(loaded, Graph) else loaded
    groups, peak = grouping(problem, by), find_peak(problem)
    sums = Counter()
    for part in peak.contributors:
        if part.buffer is not None:
            group = int(groups.group[part.buffer])
            assert group != -1 or by == "module"
            while group != -1:
                sums[group] += part.nbytes
                group = int(groups.parent[group])
    top = {groups.labels[g]: n for g, n in sums.items() if groups.parent[g] == -1}
    tree = peak_tree(peak, problem, by)
    assert tree.nbytes == peak.nbytes
    held_by_buffers = {
        node.label: sum(leaf.nbytes for leaf in node.leaves if leaf.buffer is not None)
        for node in tree.children
        if node.contributor is None
    }
    assert top == {label: nbytes for label, nbytes in held_by_buffers.items() if nbytes}


@given(st.data())
def test_the_sum_of_the_leaves_is_what_is_live(data):
    n = data.draw(st.integers(1, 12))
    numbers = st.lists(st.integers(0, 6), min_size=n, max_size=n)
    start, length = np.array(data.draw(numbers)), np.array(data.draw(numbers)) + 1
    size = np.array(data.draw(numbers)) * 8
    names = [f"{data.draw(st.sampled_from(['a.', 'a.0.', 'b/', '']))}{i}" for i in range(n)]
    problem = make_problem(start, start + length, size, names=names)
    step = data.draw(st.integers(0, problem.steps - 1))
    tree = peak_tree(contents_of(problem, step), problem)
    expected = sum(bytes_at(problem, buffer, step) for buffer in range(n))
    assert tree.nbytes == expected == sum(leaf.nbytes for leaf in tree.leaves)


def test_categories_of_a_training_step():
    roles = {
        "w": Role.CONSTANT,
        "w.exp_avg": Role.CONSTANT,
        "x": Role.INPUT,
        "hidden": Role.ACTIVATION,
        "unsaved": Role.ACTIVATION,
        "loss": Role.OUTPUT,
        "d_hidden": Role.ACTIVATION,
        "d_w": Role.ACTIVATION,
        "scratch": Role.ACTIVATION,
    }
    ops = (
        Op("f1", "mm", ("x", "w"), ("hidden",), phase=Phase.FORWARD),
        Op("f2", "relu", ("hidden",), ("unsaved",), phase=Phase.FORWARD),
        Op("f3", "sum", ("unsaved",), ("loss",), phase=Phase.FORWARD),
        Op("b1", "expand", ("hidden",), ("d_hidden",), phase=Phase.BACKWARD),
        Op("b2", "mm", ("d_hidden", "x"), ("d_w",), phase=Phase.BACKWARD),
        Op("o1", "mul", ("d_w", "w.exp_avg"), ("scratch",), phase=Phase.OPTIMIZER),
        Op("o2", "add_", ("scratch", "w"), (), ("w",), phase=Phase.OPTIMIZER),
    )
    graph = Graph(
        "step",
        tuple(Storage(name, 8, role) for name, role in roles.items()),
        tuple(Tensor(name, (2,), "float32", 8, name) for name in roles),
        ops,
        ("x",),
        ("loss",),
        ("w", "w.exp_avg"),
    )
    assert category_of_storage(graph) == {
        "w": "weights",
        "w.exp_avg": "optimizer state",
        "x": "inputs",
        "hidden": "activations",
        "unsaved": "temporaries",
        "loss": "activations",
        "d_hidden": "temporaries",
        "d_w": "gradients",
        "scratch": "temporaries",
    }


def test_the_groups_of_a_list_are_its_names_and_of_a_graph_all_that_tell_apart():
    listed = make_problem([0] * 5, [1] * 5, [1] * 5, names=["h.0.a", "h/0/b", "h.1.a", "alone", "/x"])
    (groups,) = groupings_of(listed).values()
    paths = []
    for group in groups.group.tolist():
        path = []
        while group != -1:
            path.insert(0, groups.labels[group])
            group = int(groups.parent[group])
        paths.append(path)
    assert paths == [["h.0"], ["h.0"], ["h.1"], [], [""]]
    assert groupings_of(GPT2).keys() == GROUPINGS.keys()
    one = make_problem([0], [1], [1])
    assert groupings_of(one).keys() == {"module"}
