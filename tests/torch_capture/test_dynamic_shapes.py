"""Graphs captured with dynamic shapes: what their formulas give is what a capture at those sizes gives."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from torch import nn
from torch.export import Dim

from memplan_engine import Graph, load, make_plan, to_problem
from memplan_engine.graph import Symbol
from memplan_engine.preparation import Preparation, prepare
from memplan_engine.rewrites.reuse import check_plan_execution
from memplan_engine.symbolic import resolve
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_factory import capture_factory
from memplan_engine.torch_capture.torch_graph import graph_from_exported
from tests import ROOT
from tests.support.dynamic_models import Positive, Tokens, Views, convolutions, rows, shapes_at, sizes_at


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=64, n_head=4, vocab_size=100, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=1, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=100
    )
    return transformers.BertModel(config)


def tokens(batch, seq):
    return (torch.zeros(batch, seq, dtype=torch.long),)


def images(batch, height, width):
    return (torch.zeros(batch, 3, height, width),)


# model, its inputs for values of the symbols, dynamic shapes, hints, other values (with ends of ranges)
CASES = {
    "gpt2": (
        gpt2, tokens, "input_ids:0=batch[1:64],input_ids:1=seq[2:1024]", (2, 8),
        [(1, 7), (64, 1024)],
    ),
    "bert": (
        bert, tokens, "input_ids:0=batch[1:64],input_ids:1=seq[2:512]", (2, 8),
        [(1, 7), (3, 2), (5, 129), (64, 512)],
    ),
    "views": (
        Views, rows, "x:0=batch[1:64],x:1=seq[4:1024]", (2, 8),
        [(2, 4), (3, 5), (1, 9), (5, 129), (64, 1024)],
    ),
    "tokens": (
        Tokens, tokens, "ids:0=batch[1:64],ids:1=seq[4:512]", (3, 10),
        [(2, 9), (1, 20), (7, 31), (5, 4)],
    ),
    "convolutions": (
        convolutions, images, "input:0=batch,input:2=height[8:],input:3=width[8:]", (2, 32, 36),
        [(1, 33, 50), (7, 64, 35), (3, 61, 129), (2, 8, 8)],
    ),
}  # fmt: skip
each_case = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "bert")) for name in CASES]
)
MOST_FORMULAS = {"gpt2": 10, "bert": 8, "views": 8, "tokens": 22, "convolutions": 6}


@cache
def model_of(name):
    with torch.device("meta"):
        return CASES[name][0]().eval()


@cache
def symbolic(name):
    _, inputs, shapes, hints, _ = CASES[name]
    return capture(model_of(name), inputs(*hints), dynamic_shapes=shapes, name=name)


@cache
def static_at(name, values):
    return capture(model_of(name), CASES[name][1](*values), name=name)


@each_case
def test_formulas_give_what_a_capture_at_other_sizes_gives(name):
    graph = symbolic(name)
    names = [symbol.name for symbol in graph.symbols]
    assert [symbol.hint for symbol in graph.symbols] == list(CASES[name][3])
    for values in [CASES[name][3], *CASES[name][4]]:
        static = static_at(name, values)
        at = dict(zip(names, values, strict=True))
        assert sizes_at(graph, at) == [storage.nbytes for storage in static.storages], at
        if min(values) > 1:  # at 1 torch needs fewer views
            assert shapes_at(graph, at) == [tensor.shape for tensor in static.tensors], at
            assert places(resolve(graph, at)) == places(static), at
    distinct = {storage.formula for storage in graph.storages} - {""}
    assert 3 <= len(distinct) <= MOST_FORMULAS[name]


def places(graph):
    """Where every tensor lies in its storage; the stride of a dimension of size 1 means nothing."""
    found = []
    for tensor in graph.tensors:
        strides = tensor.strides
        if strides is not None:
            strides = tuple(s for n, s in zip(tensor.shape, strides, strict=True) if n != 1)
        found.append((tensor.shape, tensor.nbytes, strides, tensor.offset))
    return found


class Slices(nn.Module):
    """Views whose place depends on the sizes."""

    def forward(self, x):
        y = x * 2
        rows, width = x.shape
        first, second = (x[..., None] * torch.ones(6)).chunk(2, -1)  # torch chunks dimensions it knows only
        last = y.select(0, rows - 1)
        narrow = y[:, : width // 2]
        return (
            torch.neg(y[rows // 2 :]), first + 1, second + 1, last * 3, narrow.t() + 1, y[::2, 1:] * 1,
            y[:, :3] * 1, y.view(-1)[rows:] * 1, y.diagonal() * 1,
        )  # fmt: skip


def test_views_move_with_the_sizes():
    shapes = "x:0=rows[4:64],x:1=width[8:256]"
    graph = capture(Slices(), (torch.zeros(20, 12),), dynamic_shapes=shapes)
    layout = {tensor.name: tensor.layout for tensor in graph.tensors if tensor.layout}
    assert layout["slice_2"] == ("width", "1", "4*width*(rows//2)")
    assert layout["select"][-1] == "4*width*(rows - 1)"
    assert layout["chunk.1"] == ("6*width", "6", "1", "12")
    assert not {"x", "mul", "neg"} & layout.keys()
    for height, width in ((20, 12), (4, 8), (6, 9), (7, 30), (64, 256)):
        static = capture(Slices(), (torch.zeros(height, width),))
        resolved = resolve(graph, {"rows": height, "width": width})
        assert places(resolved) == places(static), (height, width)
        assert resolve(resolved, {"rows": 20, "width": 12}) == graph


@pytest.mark.parametrize("seq", [4, 100, 512])
def test_reuse_at_other_sizes_is_sound(seq):
    graph = load(ROOT / "example_graphs" / "gpt2_dynamic.json")
    assert isinstance(graph, Graph)
    how = Preparation(symbols=(("batch", 2), ("seq", seq)), in_place=True, concat=True)
    problem = prepare(graph, how)
    plain = prepare(graph, Preparation(symbols=how.symbols))
    assert len(problem) < len(plain)
    assert check_plan_execution(make_plan(problem), resolve(graph, dict(how.symbols))) == ()


@each_case
def test_plain_numbers_are_those_of_a_capture_at_the_hints(name):
    graph, static = symbolic(name), static_at(name, CASES[name][3])

    def bare(tensor):
        return tensor.shape, tensor.dtype, tensor.nbytes, tensor.strides, tensor.offset

    assert [bare(tensor) for tensor in graph.tensors] == [bare(tensor) for tensor in static.tensors]
    assert [(s.nbytes, s.role) for s in graph.storages] == [(s.nbytes, s.role) for s in static.storages]
    assert [op.kind for op in graph.ops] == [op.kind for op in static.ops]
    assert static.symbols == ()
    ours, theirs = to_problem(graph), to_problem(static)
    assert [ours.start.tolist(), ours.end.tolist()] == [theirs.start.tolist(), theirs.end.tolist()]
    assert make_plan(graph).arena_bytes == make_plan(static).arena_bytes


def test_formulas_of_a_small_module_by_hand():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 6)

        def forward(self, x, y):
            joined = torch.cat([self.fc(x), y], 1)
            return joined[:, ::2].contiguous(), joined.sum(0)

    x, y = torch.ones(5, 4), torch.ones(5, 7)
    graph = capture(Small(), (x, y), dynamic_shapes="x:0=batch[1:64],y:0=batch,y:1=width[2:]")
    assert graph.symbols == (Symbol("batch", 1, 64, 5), Symbol("width", 2, None, 7))
    assert {storage.name: (storage.nbytes, storage.formula) for storage in graph.storages} == {
        "p_fc_weight": (96, ""),
        "p_fc_bias": (24, ""),
        "x": (80, "16*batch"),
        "y": (140, "4*batch*width"),
        "linear": (120, "24*batch"),
        "cat": (260, "4*batch*(width + 6)"),
        "contiguous": (140, "4*batch*((width + 7)//2)"),
        "sum_1": (52, "4*width + 24"),
    }
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    assert tensors["cat"].formulas == ("batch", "width + 6")
    assert tensors["linear"].formulas == ("batch", "6")
    assert tensors["p_fc_weight"].formulas == ()
    assert [op.kind for op in graph.ops] == [
        "aten.linear", "aten.cat", "aten.slice", "aten.contiguous", "aten.sum",
    ]  # fmt: skip


def test_a_file_gives_the_same_but_for_the_names(tmp_path):
    names = {"batch": "s0", "seq": "s1"}
    batch, seq = Dim("batch", max=64), Dim("seq", min=4, max=1024)
    exported = torch.export.export(
        Views(),
        rows(2, 8),
        dynamic_shapes=({0: batch, 1: seq},),
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    torch.export.save(exported, tmp_path / "views.pt2")
    live, saved = graph_from_exported(exported, "views"), load(tmp_path / "views.pt2")
    assert [symbol.name for symbol in live.symbols] == list(names)
    assert saved.symbols == (Symbol("s0", 1, 64, 2), Symbol("s1", 4, 1024, 8))
    assert saved.ops == live.ops
    assert [(s.name, s.nbytes) for s in saved.storages] == [(s.name, s.nbytes) for s in live.storages]
    for values in ((2, 8), (3, 5), (64, 1024)):
        static = capture(Views(), rows(*values))
        at = dict(zip(names.values(), values, strict=True))
        assert sizes_at(saved, at) == [storage.nbytes for storage in static.storages]


def test_a_functional_capture_has_formulas_too():
    graph = capture(convolutions(), images(2, 32, 32), dynamic_shapes="input:0=batch", functional=True)
    assert {storage.formula for storage in graph.storages if "batch" in storage.formula}
    assert all(not op.mutates for op in graph.ops)


def test_torch_s_own_forms_are_taken():
    half = Dim("half", min=1, max=30)

    class Halves(nn.Module):
        def forward(self, x, y):
            return x[::2] + y

    inputs = torch.ones(6, 4), torch.ones(3, 4)
    graph = capture(Halves(), inputs, dynamic_shapes={"x": {0: 2 * half}, "y": {0: half}})
    assert graph.symbols == (Symbol("half", 1, 30, 3),)
    assert [storage.formula for storage in graph.storages] == ["32*half", "16*half", "16*half"]
    graph = capture(Halves(), inputs, dynamic_shapes=({1: Dim.AUTO}, {1: Dim.AUTO}))
    assert graph.symbols == (Symbol("s0", 2, None, 4),)


def test_a_dim_that_no_formula_can_name_is_a_symbol_with_that_name():
    graph = capture(nn.ReLU(), (torch.rand(6, 2),), dynamic_shapes=({0: Dim("lambda")},))
    assert graph.symbols == (Symbol("s0", 1, None, 6, "lambda"),)
    assert resolve(graph, {"lambda": 3}).tensors[1].shape == (3, 2)


def test_what_auto_finds_fixed_is_a_plain_number():
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    graph = capture(nn.Linear(4, 6), (torch.ones(3, 4),), dynamic_shapes=(auto,))
    assert [symbol.hint for symbol in graph.symbols] == [3]
    assert [storage.formula for storage in graph.storages] == ["", "", "16*s0", "24*s0"]


def test_inputs_are_named_by_path_in_any_order():
    class Nested(nn.Module):
        def forward(self, first, pair, extra=None):
            return first + pair[1]["deep"], extra * 2

    inputs = {"pair": (torch.ones(2), {"deep": torch.ones(5)}), "extra": torch.ones(7)}
    graph = capture(
        Nested(), (torch.ones(5),), inputs, dynamic_shapes=["extra:0=e", "pair.1.deep:0=n, first:0=n"]
    )
    assert {symbol.name: symbol.hint for symbol in graph.symbols} == {"n": 5, "e": 7}
    assert {storage.formula for storage in graph.storages} == {"4*n", "4*e", ""}


def test_factories_say_which_dimensions_are_dynamic(monkeypatch):
    monkeypatch.syspath_prepend(".")
    plain = capture_factory("tests.support.dynamic_models:plain_factory")
    assert plain.symbols == ()
    asked = capture_factory("tests.support.dynamic_models:plain_factory", dynamic=("x:0=batch[1:64]",))
    own = capture_factory("tests.support.dynamic_models:dynamic_factory")
    named = capture_factory("tests.support.dynamic_models:dictionary_factory")
    assert asked.symbols == own.symbols == named.symbols == (Symbol("batch", 1, 64, 2),)
    assert asked.storages == own.storages == named.storages
    other = capture_factory("tests.support.dynamic_models:dynamic_factory", dynamic=("x:1=seq[4:99]",))
    assert other.symbols == (Symbol("seq", 4, 99, 8),)


@pytest.mark.parametrize(("shapes", "high"), [(None, 6), ("x:0=batch[2:9]", 9)])
def test_sizes_that_depend_on_the_data_have_a_symbol_without_a_hint(shapes, high, tmp_path):
    graph = capture(Positive(), (torch.ones(6, 4),), dynamic_shapes=shapes)
    assert graph.symbols[-1] == Symbol("u0", 0, high, None)
    storages = {storage.name: storage for storage in graph.storages}
    assert [(storages[name].nbytes, storages[name].formula) for name in ("nonzero", "index", "mul")] == [
        (0, "8*u0"), (0, "16*u0"), (0, "16*u0"),
    ]  # fmt: skip
    assert storages["zeros"].nbytes == 48
    assert "mul" not in to_problem(graph).names
    assert all(op.kind.startswith("aten.") and "sym" not in op.kind for op in graph.ops)


def test_a_file_with_sizes_that_depend_on_the_data(tmp_path):
    exported = torch.export.export(Positive(), (torch.ones(6, 4),), strict=False)
    torch.export.save(exported, tmp_path / "positive.pt2")
    assert load(tmp_path / "positive.pt2") == graph_from_exported(exported, "positive")


def test_strides_and_offsets_say_where_a_view_lies():
    class Parts(nn.Module):
        def forward(self, x):
            return x[1:, 2:] * 1, x.t() + 0, x[0] * 1, x[:, :1].expand(-1, 3) * 1

    graph = capture(Parts(), (torch.ones(3, 4),))
    layout = {tensor.name: (tensor.shape, tensor.strides, tensor.offset) for tensor in graph.tensors}
    assert layout["x"] == ((3, 4), None, 0)
    assert layout["slice_2"] == ((2, 2), (4, 1), 24)
    assert layout["t"] == ((4, 3), (1, 4), 0)
    assert layout["select"] == ((4,), None, 0)
    assert layout["expand"] == ((3, 3), (4, 0), 0)
    assert layout["mul"] == ((2, 2), None, 0)


def test_control_flow_and_sizes_read_from_tensors():
    class Reads(nn.Module):
        def forward(self, x):
            count = x.sum().to(torch.int64).item()
            torch._check(count >= 2)
            torch._check(count < 100)
            return torch.zeros(count, 4), torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,))

    graph = capture(Reads(), (torch.ones(6, 4),), dynamic_shapes="x:0=batch[2:99]")
    assert graph.symbols == (Symbol("batch", 2, 99, 6), Symbol("u0", 2, 99, None))
    formulas = {storage.name: storage.formula for storage in graph.storages}
    assert (formulas["zeros"], formulas["cond.0"]) == ("16*u0", "16*batch")
    assert "aten.item" in [op.kind for op in graph.ops]


def test_inputs_that_share_a_storage():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y.sum()

    whole = torch.ones(8, 4)
    graph = capture(Sum(), (whole[:6], whole[2:]), dynamic_shapes="x:0=batch[2:99],y:0=batch")
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    assert homes["x"] == homes["y"] == "x"
    assert {tensor.name: tensor.offset for tensor in graph.tensors}["y"] == 32
    assert (graph.storages[0].nbytes, graph.storages[0].formula) == (128, "16*batch + 32")


def test_a_graph_resolved_at_other_sizes_plans_as_a_capture_there():
    graph = symbolic("views")
    static = capture(Views(), rows(3, 20))
    resolved = resolve(graph, {"batch": 3, "seq": 20})
    assert [storage.nbytes for storage in resolved.storages] == [s.nbytes for s in static.storages]
    assert make_plan(resolved).arena_bytes == make_plan(static).arena_bytes


PAGE = (ROOT / "docs" / "dynamic_shapes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "printed"), re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.S)
)
def test_the_examples_of_the_page_print_what_it_shows(code, printed, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(code, {"__name__": "example"})
    assert capsys.readouterr().out == printed


def test_the_page_has_examples():
    assert PAGE.count("```python") == PAGE.count("```text") == 3  # and no example goes untried
