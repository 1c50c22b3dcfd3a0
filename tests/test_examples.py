"""Every example: its size, its bound worked out a second way, and the arenas that must not change unseen."""

from __future__ import annotations

import pytest

import example_graphs
from memplan_engine import Graph, Problem, load, make_plan, to_problem

# name: buffers, LOAD, and the arenas of auto, greedy_by_size and linear_scan, in bytes
GOLDEN = {
    "bert_base.json": (160, 10_617_216, 10_617_216, 10_617_216, 10_617_216),
    "gpt2.json": (230, 54_525_952, 54_525_952, 54_525_952, 62_930_944),
    "gpt2_all_logits.json": (230, 104_499_200, 104_499_200, 104_499_200, 104_499_200),
    "llama_7b.json": (1124, 76_808_192, 76_808_192, 76_808_192, 94_138_368),
    "mobilenet_v2.json": (203, 9_720_192, 10_436_608, 14_450_688, 10_436_608),
    "resnet50.json": (158, 9_633_792, 9_633_792, 9_633_792, 10_436_608),
    "squeezenet.onnx": (64, 6_308_352, 6_308_352, 6_308_352, 6_308_352),
    "teaching_alignment.csv": (4, 11, 11, 11, 11),
    "teaching_best_fit.csv": (8, 10, 10, 12, 10),
    "teaching_first_fit.csv": (6, 7, 7, 7, 10),
    "teaching_gaps.csv": (4, 7, 7, 7, 7),
    "teaching_greedy_by_size.csv": (5, 7, 7, 11, 9),
    "teaching_linear_scan.csv": (4, 7, 7, 7, 12),
    "teaching_no_way_out.csv": (9, 5, 6, 6, 7),
    "teaching_view.json": (4, 16_384, 16_384, 16_384, 16_384),
    "unet_training.csv": (582, 211_318_784, 211_318_784, 219_558_144, 217_270_272),
    "vit_b16.json": (156, 5_446_853, 5_446_853, 5_446_853, 6_052_096),
    "whisper_tiny.json": (219, 20_736_000, 20_736_000, 20_736_000, 23_040_000),
}
STRATEGIES = ("auto", "greedy_by_size", "linear_scan")


def test_every_example_has_its_golden_row() -> None:
    assert {path.name for path in example_graphs.examples()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_arena(name: str) -> None:
    path = example_graphs.PATH / name
    loaded = load(path)
    assert isinstance(loaded, Graph | Problem)
    buffers, bound, *arenas = GOLDEN[name]
    plans = [make_plan(loaded, strategy) for strategy in STRATEGIES]
    assert path.stat().st_size < 2**20
    assert len(plans[0].problem) == buffers
    assert plans[0].bound.nbytes == bound
    assert [plan.arena_bytes for plan in plans] == arenas


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.endswith((".json", ".onnx"))])
def test_load_of_the_graph_worked_out_step_by_step(name: str) -> None:
    graph = load(example_graphs.PATH / name)
    assert isinstance(graph, Graph)
    assert make_plan(to_problem(graph, alignment=1), "naive").bound.nbytes == max(_live(graph))


def _live(graph: Graph) -> list[int]:
    """Live bytes at each op, the plain way: a storage is there from its first op to its last."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    planned = {storage.name: storage.nbytes for storage in graph.storages}
    for name in (*graph.inputs, *graph.constants):
        planned.pop(home[name], None)
    touched: dict[str, list[int]] = {}
    for step, op in enumerate(graph.ops):
        for name in {*op.inputs, *op.outputs, *op.mutates}:
            touched.setdefault(home[name], []).append(step)
    for name in graph.outputs:
        touched.setdefault(home[name], []).append(len(graph.ops) - 1)
    return [
        sum(
            nbytes
            for name, nbytes in planned.items()
            if name in touched and min(touched[name]) <= step <= max(touched[name])
        )
        for step in range(len(graph.ops))
    ]
