"""Every example: its size, its bound worked out a second way, and the arenas that must not change unseen."""

from __future__ import annotations

import memplan_examples
import pytest

from memplan_engine import Graph, Problem, load, make_plan, to_problem
from memplan_engine.analysis.positional import shared_objects_bound
from memplan_engine.strategies.base import SolveLimits

# name: buffers, LOAD, and the arenas of auto, greedy_by_size and first_fit_by_start, in bytes
GOLDEN = {
    "bert_base.json": (153, 10_616_832, 10_616_832, 10_616_832, 10_616_832),
    "bert_training_default.json": (330, 752_635_076, 752_635_076, 752_635_076, 771_613_696),
    "bert_training_min_cut.json": (321, 598_494_404, 598_494_404, 598_494_404, 611_714_048),
    "cuda_snapshot.pickle": (682, 1_450_180_608, 1_450_180_608, 1_450_180_608, 1_450_180_608),
    "diff_attention_base.json": (47, 53_477_376, 53_477_376, 53_477_376, 56_623_104),
    "diff_attention_head.json": (66, 117_440_512, 117_440_512, 117_440_512, 122_699_776),
    "diff_batch_base.json": (33, 28_311_552, 28_311_552, 28_311_552, 28_311_552),
    "diff_batch_head.json": (33, 56_623_104, 56_623_104, 56_623_104, 56_623_104),
    "diff_front_op_base.json": (42, 5_446_656, 5_446_656, 5_446_656, 6_051_840),
    "diff_front_op_head.json": (43, 5_446_656, 5_446_656, 5_446_656, 6_051_840),
    "diff_kept_view_base.json": (28, 16_777_216, 16_777_216, 16_781_312, 16_777_216),
    "diff_kept_view_head.json": (27, 20_971_520, 20_971_520, 20_971_520, 25_165_824),
    "gpt2.json": (217, 53_477_376, 53_477_376, 53_477_376, 56_623_104),
    "gpt2_all_logits.json": (217, 104_499_200, 104_499_200, 104_499_200, 104_499_200),
    "gpt2_dynamic.json": (81, 6_684_672, 6_684_672, 6_684_672, 7_077_888),
    "gpt2_training_step.json": (484, 579_726_340, 579_726_340, 591_372_292, 750_220_288),
    "llama_7b.json": (1111, 76_546_048, 76_546_048, 76_546_048, 93_718_528),
    "mobilenet_v1_tflite.json": (30, 4_816_896, 4_816_896, 4_816_896, 6_422_528),
    "mobilenet_v2.json": (203, 9_720_192, 9_720_192, 14_450_688, 10_436_608),
    "mobilenet_v2_tflite.json": (65, 6_021_120, 6_021_120, 6_021_120, 6_823_936),
    "resnet50.json": (158, 9_633_792, 9_633_792, 9_633_792, 10_436_608),
    "squeezenet.onnx": (64, 6_308_352, 6_308_352, 6_308_352, 6_308_352),
    "teaching_alignment.csv": (4, 11, 11, 11, 11),
    "teaching_best_fit.csv": (8, 10, 10, 12, 10),
    "teaching_first_fit.csv": (6, 7, 7, 7, 10),
    "teaching_gaps.csv": (4, 7, 7, 7, 7),
    "teaching_greedy_by_size.csv": (5, 7, 7, 11, 9),
    "teaching_linear_scan.csv": (4, 7, 7, 7, 12),
    "teaching_no_way_out.csv": (9, 5, 6, 6, 7),
    "teaching_order.json": (8, 26_624, 26_624, 26_624, 28_672),
    "teaching_view.json": (4, 16_384, 16_384, 16_384, 16_384),
    "transformer_dynamic.onnx": (50, 36_864, 36_864, 36_864, 36_864),
    "unet_training.csv": (582, 211_318_784, 211_318_784, 219_558_144, 217_270_272),
    "vit_b16.json": (149, 5_446_656, 5_446_656, 5_446_656, 6_051_840),
    "whisper_tiny.json": (206, 20_736_000, 20_736_000, 20_736_000, 23_040_000),
}
STRATEGIES = ("auto", "greedy_by_size", "first_fit_by_start")

# name: the sum of the positional maxima and the arenas of linear_scan and of the shared objects, in bytes
GOLDEN_JIT = {
    "gpt2.json": (53_477_376, 59_768_832, 53_477_376, 53_477_376, 53_477_376, 53_477_376, 69_206_016),
    "mobilenet_v2.json": (10_021_248, 13_452_608, 14_938_496, 10_121_600, 12_128_640, 11_526_528, 12_994_176),
    "resnet50.json": (9_633_792, 12_845_056, 9_633_792, 9_633_792, 10_436_608, 9_633_792, 11_239_424),
    "squeezenet.onnx": (7_082_752, 6_308_352, 7_857_152, 7_082_752, 7_276_352, 7_857_152, 8_672_768),
    "unet_training.csv": (
        236_288_000,
        234_356_736,
        236_602_368,
        236_288_000,
        240_482_304,
        546_656_256,
        269_466_624,
    ),
    "vit_b16.json": (6_657_024, 8_469_504, 6_657_024, 7_262_208, 6_657_024, 6_657_024, 7_867_392),
}
JIT_STRATEGIES = (
    "linear_scan",
    "shared_objects_by_size",
    "shared_objects_by_size_improved",
    "shared_objects_by_breadth",
    "shared_objects_in_order",
    "shared_objects_min_cost_flow",
)


def test_every_example_has_its_golden_row() -> None:
    assert {path.name for path in memplan_examples.examples()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_arena(name: str) -> None:
    path = memplan_examples.PATH / name
    loaded = load(path)
    assert isinstance(loaded, Graph | Problem)
    buffers, bound, *arenas = GOLDEN[name]
    # Without a limit in seconds: each search ends with a proof.
    plans = [make_plan(loaded, strategy, limits=SolveLimits()) for strategy in STRATEGIES]
    assert path.stat().st_size < 2**20
    assert len(plans[0].problem) == buffers
    assert plans[1].bound.nbytes == bound
    assert [plan.arena_bytes for plan in plans] == arenas
    # What passes LOAD passes it by a proof.
    assert plans[0].bound.nbytes == plans[0].arena_bytes


@pytest.mark.parametrize("name", GOLDEN_JIT)
def test_golden_arena_of_the_jit_planner_and_of_shared_objects(name: str) -> None:
    plans = [make_plan(load(memplan_examples.PATH / name), strategy) for strategy in JIT_STRATEGIES]
    bound = shared_objects_bound(plans[0].problem)
    assert (bound, *(plan.arena_bytes for plan in plans)) == GOLDEN_JIT[name]


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.endswith((".json", ".onnx"))])
def test_load_of_the_graph_worked_out_step_by_step(name: str) -> None:
    graph = load(memplan_examples.PATH / name)
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


# What ops of one kind hold inside, bytes by hand, in graphs of 12 heads: of attention the logarithm of a sum
# for each head and row; of a norm mean and inverse deviation of each row; of pooling where each maximum was.
HELD = {
    ("gpt2.json", "aten.scaled_dot_product_attention"): 4 * 12 * 1024,
    ("gpt2.json", "aten.layer_norm"): 2 * 4 * 1024,
    ("bert_base.json", "aten.scaled_dot_product_attention"): 4 * 12 * 384,
    ("resnet50.json", "aten.max_pool2d"): 8 * 64 * 56 * 56,
}


@pytest.mark.parametrize(("name", "kind"), HELD)
def test_the_temporaries_of_the_examples(name, kind):
    graph = load(memplan_examples.PATH / name)
    assert {op.workspace.shared for op in graph.ops if op.kind == kind} == {HELD[name, kind]}
    plan = make_plan(to_problem(graph), "greedy_by_size")
    largest = max(op.workspace.shared for op in graph.ops)
    assert (plan.problem.scope, plan.total_bytes) == ("with_temporaries", plan.arena_bytes + largest)
