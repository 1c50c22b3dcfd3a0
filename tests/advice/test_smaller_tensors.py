"""What holds the peak in half of its bytes, against hand counts and a capture in that type."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention

from memplan_engine import capture, load, make_plan
from memplan_engine.advice.advise import advise
from memplan_engine.advice.situation import Situation
from memplan_engine.advice.smaller_tensors import patterns_at_peak
from memplan_engine.graph import Graph, Phase
from memplan_engine.preparation import Preparation
from memplan_engine.rewrites.reuse.in_place import write_in_place
from memplan_engine.what_if.edits import Pin, Resize
from tests import ROOT
from tests.advice.test_advise import layers


def floats(graph: Graph) -> Graph:
    """`graph` of the same bytes, four of them an element."""
    tensors = (replace(each, dtype="float32", shape=(each.nbytes // 4,)) for each in graph.tensors)
    return replace(graph, tensors=tuple(tensors))


def test_counterparts_in_all_layers_become_smaller_together() -> None:
    # Two of mm and relu are live at each of the steps 1 to 5, of 640 bytes each: one pattern in half
    # leaves 640 + 320.
    advice = advise(floats(layers(3)))
    assert [(each.title, each.arena_bytes, each.saved_bytes) for each in advice.suggestions] == [
        ("bfloat16 at the peak in layers.*", 640, 640),
        ("bfloat16 for mm of layers.*", 960, 320),
        ("bfloat16 for relu of layers.*", 960, 320),
    ]
    assert [(edit.kind, edit.buffer, edit.nbytes) for edit in advice.suggestions[1].edits] == [
        ("resize", "mm0", 320),
        ("resize", "mm1", 320),
        ("resize", "mm2", 320),
    ]
    assert advice.suggestions[1].note.startswith(
        "compute mm of layers.* in bfloat16, in 3 layers: results are rounded"
    )
    assert {each.numerics for each in advice.suggestions} == {"changes numerics"}


def test_patterns_hold_what_is_live_at_a_peak() -> None:
    graph = floats(layers(3))
    patterns = patterns_at_peak(Situation(graph, Preparation(), (), make_plan(graph)))
    assert [(each.module, each.kind, len(each.rows), each.at_peak) for each in patterns] == [
        ("net.layers.*", "aten.mm", 3, 640),
        ("net.layers.*", "aten.relu", 3, 640),
    ]


def test_a_training_step_is_not_resized() -> None:
    graph = floats(layers(3))
    step = replace(graph, ops=tuple(replace(op, phase=Phase.FORWARD) for op in graph.ops))
    assert "bfloat16" not in " ".join(each.title for each in advise(step).suggestions)


def test_what_is_pinned_stays_as_it_is() -> None:
    advice = advise(floats(layers(1)), edits=(Pin("mm0", 640), Pin("relu0", 0)))
    assert advice.suggestions == ()


def test_types_without_a_half_are_left_alone() -> None:
    assert not any("half" in each.kinds for each in advise(layers(3)).suggestions)


@pytest.mark.parametrize("width", [256, 1000])
def test_a_model_in_bfloat16_needs_what_was_promised(width: int) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64)).eval()
        batch = torch.zeros(16, 64)
    promised = next(s for s in advise(capture(model, (batch,))).suggestions if s.kinds == ("half",))
    really = capture(model.bfloat16(), (batch.bfloat16(),))
    assert promised.title == "bfloat16 at the peak"
    assert promised.arena_bytes == make_plan(really).arena_bytes == 2 * 16 * width * 2


def test_without_a_module_the_size_tells_results_of_one_kind_apart() -> None:
    graph = load(ROOT / "example_graphs" / "teaching_view.json")
    assert isinstance(graph, Graph)
    assert [each.title for each in advise(graph).suggestions if each.kinds == ("half",)] == [
        "bfloat16 at the peak",
        "bfloat16 for linear (8 KiB)",
        "bfloat16 for linear (6 KiB)",
    ]


class Scans(nn.Module):
    """Attention and a scan, of which torch runs most ops by itself, and a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def row(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (carry + row).tanh(), torch.outer(row, row).exp().sum(0)

        heads = scan(row, x[0] * 0, x)[1].reshape(1, 1, 16, 32)
        seen: torch.Tensor = flex_attention(heads, heads, heads)  # type: ignore[assignment]
        return torch.cond(
            seen.sum() > 0, lambda y: torch.cat([y, y]).sin().sum(0)[None], torch.cos, (seen[0],)
        )


def test_nothing_is_advised_on_ops_that_torch_runs_by_itself() -> None:
    torch._dynamo.reset()
    graph = capture(Scans(), (torch.rand(16, 32),))
    by_torch = {op.name for op in graph.ops if op.is_of_torch}
    homes = {tensor.name: tensor.storage for tensor in graph.tensors}
    theirs = {homes[name] for op in graph.ops if op.name in by_torch for name in op.outputs}
    results = {homes[name] for op in graph.ops if op.name in ("scan", "cond") for name in op.outputs}
    assert {"scan.carried", "scan.places", "scan.at_0", "flex_attention.body.bmm"} <= by_torch
    assert not {"scan.body.exp", "cond.true.sin"} & by_torch
    assert not {rewrite.op for rewrite in write_in_place(graph).in_place} & by_torch
    advice = advise(graph)
    assert advice.suggestions
    edits = {edit.buffer for each in advice.suggestions for edit in each.edits if isinstance(edit, Resize)}
    assert not edits & (theirs | results)
    assert all(change.source for each in advice.suggestions for change in each.code)
