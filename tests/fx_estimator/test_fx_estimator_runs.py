"""The FX memory estimator's two rules against each other, against real runs, entry by entry, and against the
estimator of the installed torch."""

from __future__ import annotations

import operator
import re
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._inductor.fx_passes import memory_estimator as installed

from memplan_engine.fx_estimator import (
    StorageAliasing,
    build_memory_profile,
    estimate_training,
    get_peak_memory,
    is_not_primal,
    size_of_node,
)
from memplan_engine.lifetimes import Unread
from tests import ROOT
from tests.fx_estimator.fx_graphs import Writer, real_inputs
from tests.support.fx_measured import measure_pair, measure_profile
from tests.support.fx_models import Pair, small, trace_pair

aten = torch.ops.aten


def profile(graph, unread, aliasing=None):
    return build_memory_profile(graph, size_of_node, is_not_primal, aliasing=aliasing, unread=unread)


POINTWISE = (aten.neg.default, aten.relu.default, aten.clone.default)
VIEWS = {
    "view": (aten.view.default, ([12],)),
    "narrow": (aten.slice.Tensor, (0, 0, 1)),
    "expand": (aten.expand.default, ([5, -1, -1],)),
    "swap": (aten.transpose.int, (0, 1)),
    "detach": (aten.detach.default, ()),
    "split": (aten.split_with_sizes.default, ([1, 3], -1)),
}


def write_op(w, kind, values, draw):
    """Write the op `kind` on some of `values`; its results that are 3 x 4 tensors."""
    x = draw(st.sampled_from(values))
    if kind == "pointwise":
        return [w.call(draw(st.sampled_from(POINTWISE)), x)]
    if kind == "add":
        return [w.call(aten.add.Tensor, x, other=draw(st.sampled_from(values)))]
    if kind == "cat":
        joined = w.call(aten.cat.default, draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
        return [w.call(aten.add.Tensor, w.call(aten.sum.default, joined), x)]
    if kind == "sort":
        two = w.call(aten.sort.default, x)
        return [w.call(operator.getitem, two, 0), w.call(operator.getitem, two, 1)]
    target, more = VIEWS[kind]
    view = w.call(target, x, *more)
    if kind == "split":
        view = w.call(operator.getitem, view, draw(st.integers(0, 1)))
    if kind in ("detach", "swap"):
        return [w.call(aten.mul.Tensor, x, 2), *([view] if kind == "detach" else [])]
    return [w.call(aten.add.Tensor, w.call(aten.sum.default, view), x)] if draw(st.booleans()) else []


@st.composite
def written_graphs(draw, kinds):
    """A graph of a few ops on 3 x 4 tensors; getitems that nobody reads are returned."""
    w = Writer()
    values = [w.placeholder(name, 3, 4) for name in ("primals_1", "saved")]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=8)):
        values += write_op(w, kind, values, draw)
    chosen = draw(st.lists(st.sampled_from(values), max_size=3))
    unread = [n for n in w.graph.nodes if n.target is operator.getitem and not n.users]
    w.output(*dict.fromkeys([*chosen, *unread]))
    return w


@given(written_graphs(("pointwise", "add", "cat", "sort")), st.sampled_from(Unread))
def test_without_aliases_both_rules_agree(writer, unread):
    assert profile(writer.graph, unread) == profile(writer.graph, unread, StorageAliasing())


@given(written_graphs(("pointwise", "add", "cat", "sort", *VIEWS)), st.sampled_from(Unread))
def test_every_entry_by_storages_is_what_a_real_run_takes(writer, unread):
    inputs = real_inputs(writer.graph)
    primal, freed = inputs[:1], unread is Unread.FREED
    measured, peak, _ = measure_profile(writer.module(), inputs, primal, free_unread=freed)
    assert profile(writer.graph, unread, StorageAliasing()) == measured
    assert max(measured) == peak


class Awkward(nn.Module):
    """Batch norm in training, chunk, split, expand, an unread output, a saved value of which the caller gets
    a view, and an output that is the input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu_()
        a, b = y.chunk(2, dim=1)
        c, d, _ = torch.split(y, [2, 2, 4], dim=1)
        wide = (c.transpose(2, 3) * d).mean(dim=(2, 3), keepdim=True).expand(-1, -1, 8, 8)
        values, _ = torch.max(a * b, dim=1)
        square = y.sigmoid()
        tail = self.last(square.mean(dim=(2, 3)).exp())
        loss = tail.sum() + (wide * c).sum() + values.sum()
        return loss, square.view(square.shape[0], -1)[:, 3:], x


@cache
def traced(name: str, partition: str) -> Pair:
    torch.manual_seed(0)
    if name == "awkward":
        return trace_pair(Awkward(), (torch.rand(2, 3, 8, 8),), {}, partition)
    pytest.importorskip("transformers")
    # What a model costs to trace grows with its layers. How layers follow each other, GPT-2 has.
    kind, _, layers = name.partition(", ")
    return trace_pair(*small(kind, layers=2 if layers or kind == "gpt2" else 1), partition)


TRACED = [
    ("awkward", "default"),
    ("awkward", "min-cut"),
    ("vit", "default"),
]
SLOW_TRACED = [
    *(("gpt2", "default"), ("gpt2", "min-cut"), ("vit", "min-cut")),
    *(("bert", "default"), ("bert", "min-cut")),
    *product(("bert, 2 layers", "t5, 2 layers", "vit, 2 layers"), ("default", "min-cut")),
    *product(("resnet", "mobilenet"), ("default", "min-cut")),
]


@pytest.mark.parametrize("unread", Unread)
@pytest.mark.parametrize(
    ("name", "partition"), TRACED + [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW_TRACED]
)
def test_a_training_step_by_storages_is_what_a_real_run_takes(name, partition, unread):
    pair = traced(name, partition)
    forward, backward, peak = measure_pair(
        pair.forward, pair.backward, pair.inputs, free_unread=unread is Unread.FREED
    )
    graphs = pair.forward.graph, pair.backward.graph
    estimate = estimate_training(*graphs, aliasing=StorageAliasing(), unread=unread)
    assert list(estimate.forward) == forward
    assert [estimate.baseline + entry for entry in estimate.backward] == backward
    assert estimate.peak == get_peak_memory(*graphs, aliasing=StorageAliasing(), unread=unread) == peak


def test_values_without_readers_are_what_a_default_partition_holds():
    pair = traced("vit", "default")
    held, freed = (
        estimate_training(pair.forward.graph, pair.backward.graph, aliasing=StorageAliasing(), unread=unread)
        for unread in (Unread.HELD, Unread.FREED)
    )
    # The backward repeats the layer's attention and reads neither output, of 2 x 2 x 17 x 16 and 2 x 2 x 17
    # floats.
    assert held.backward_peak - freed.backward_peak == 4352 + 272


@pytest.mark.parametrize(
    ("name", "partition"),
    [pytest.param("bert", "min-cut", marks=pytest.mark.slow), ("awkward", "min-cut")],
)
def test_the_installed_torch_agrees_where_it_is_mended_and_every_value_is_read(name, partition, monkeypatch):
    monkeypatch.setattr(installed, "device_filter", lambda device: True)
    pair = traced(name, partition)
    estimate = estimate_training(pair.forward.graph, pair.backward.graph, aliasing=StorageAliasing())

    def may_go(node):
        return is_not_primal(node) and node.name not in estimate.held

    assert installed.build_memory_profile(pair.forward.graph, is_not_primal) == list(estimate.forward)
    assert installed.build_memory_profile(pair.backward.graph, may_go) == list(estimate.backward)


def test_a_second_estimate_is_the_first_one():
    """torch caches what fake tensors give, and what comes out of the cache may be smaller than what went in:
    this `copy` has 508 bytes there."""
    w = Writer()
    narrow = w.call(aten.slice.Tensor, w.placeholder("x", 2, 64), 1, 1, 64)
    graph = w.output(w.call(aten.copy.default, narrow, w.placeholder("y", 2, 63)))
    inputs = real_inputs(graph)
    measured, _, _ = measure_profile(w.module(), list(inputs), inputs)
    once, again = (
        build_memory_profile(graph, size_of_node, lambda node: False, aliasing=StorageAliasing())
        for _ in "12"
    )
    assert once == again == measured
    assert measured[-1] - measured[0] == 512


def test_the_example_of_the_docs_prints_what_it_says(capsys):
    text = (ROOT / "docs" / "systems" / "fx_estimator.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})
    said = [line.removeprefix("# ") for line in example.splitlines() if line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == said
