"""The JIT planner's strategies and Pisarchyk and Lee's comparison, against the published definitions."""

from __future__ import annotations

import memplan_examples
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memplan_examples.make_mobilenet import mobilenet_v1, mobilenet_v2

from memplan_engine import load
from memplan_engine.analysis.positional import object_summary, shared_objects_bound
from memplan_engine.errors import PlanError
from memplan_engine.lifetimes import to_problem
from memplan_engine.planner import make_plan
from memplan_engine.problem import FREE, make_problem
from memplan_engine.strategies import known_strategies
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.strategies.constructive.linear_scan import LinearScan
from memplan_engine.strategies.constructive.orders import FitRule
from memplan_engine.verify.validate import validate_plan
from tests.support import drawn, reference
from tests.support import reference_objects as plain


def tightest_gaps(problem, order):
    """The paper's placement, word for word: walk what is placed and overlaps in time by offset, with a
    running end; the tightest gap that fits, else behind the last."""
    offsets: dict[int, int] = {}
    for buffer in order:
        size = int(problem.size[buffer])
        meets = [b for b in offsets if plain.idle(problem, b, buffer) < 0]
        reach, best, tightest = 0, None, None
        for other in sorted(meets, key=lambda b: offsets[b]):
            gap = offsets[other] - reach
            if gap >= size and (tightest is None or gap < tightest):
                best, tightest = reach, gap
            reach = max(reach, offsets[other] + int(problem.size[other]))
        offsets[buffer] = reach if best is None else best
    return [offsets[buffer] for buffer in range(len(problem))]


def by_size(problem):
    return sorted(range(len(problem)), key=lambda b: (-problem.size[b], problem.start[b], b))


@given(problem=drawn.problems(gaps=False, fixed=False, most=16, alignments=st.just(1)))
def test_greedy_by_size_and_by_breadth_are_the_papers(problem):
    # Nobody plans tensors without bytes, and the paper does not say where they would go.
    problem = make_problem(problem.start, problem.end, np.maximum(problem.size, 1))
    assert make_plan(problem, "greedy_by_size").offsets.tolist() == tightest_gaps(problem, by_size(problem))
    expected = tightest_gaps(problem, plain.breadth_order(problem))
    assert make_plan(problem, "greedy_by_breadth").offsets.tolist() == expected


@given(problem=drawn.problems(gaps=False, fixed=False, most=16))
def test_linear_scan_is_the_published_one(problem):
    assert make_plan(problem, "linear_scan").offsets.tolist() == plain.linear_scan(problem)
    first = LinearScan(FitRule.FIRST).place(problem, SolveLimits()).offsets.tolist()
    assert first == plain.linear_scan(problem, "first")
    reference.assert_sound(problem, first)


@pytest.mark.parametrize("fit", ["best", "first"])
def test_linear_scan_is_the_published_one_for_hundreds_of_buffers_too(fit):
    random = np.random.default_rng(8)
    start = random.integers(0, 100, 400)
    problem = make_problem(
        start, start + random.integers(1, 25, 400), random.integers(1, 500, 400), alignment=8
    )
    assert make_plan(problem, LinearScan(FitRule(fit))).offsets.tolist() == plain.linear_scan(problem, fit)


def test_linear_scan_exchanges_the_one_that_ends_last_by_hand():
    # 0 lies at [0, 8). 1 finds nothing free; 0 ends later and moves to [8, 16), 1 takes [0, 3) of its place
    # and [3, 8) is free: exactly right for 2. At step 3 the bytes of 1 are free for 3. At step 4 the hole
    # [3, 8) is too small for 4, and 0 ends sooner than 4: 4 goes behind everything.
    problem = make_problem([0, 1, 2, 3, 4], [10, 3, 4, 9, 12], [8, 3, 5, 3, 6])
    plan = make_plan(problem, "linear_scan")
    assert plan.offsets.tolist() == [8, 0, 3, 0, 16]
    assert plan.arena_bytes == 22


def test_linear_scan_takes_the_tightest_free_range_or_the_lowest_by_hand():
    # One behind the other: 0 at [0, 6), 1 at 6, 2 at [7, 10). At step 3 those around 1 are gone.
    between = make_problem([0, 1, 2, 3], [3, 9, 3, 5], [6, 1, 3, 3])
    assert make_plan(between, LinearScan(FitRule.BEST)).offsets.tolist() == [0, 6, 7, 7]
    assert make_plan(between, LinearScan(FitRule.FIRST)).offsets.tolist() == [0, 6, 7, 0]


def test_an_exchange_can_cost_more_than_no_reuse():
    # The byte drives the 10 bytes out, and their old place is never used again.
    problem = make_problem([0, 1], [9, 2], [10, 1])
    plan = make_plan(problem, "linear_scan")
    assert (plan.arena_bytes, plan.naive_bytes) == (20, 11)
    assert make_plan(problem, "first_fit_by_start").arena_bytes == 11


def test_linear_scan_rounds_sizes_up_and_scans_above_what_is_fixed():
    problem = make_problem([0, 0, 1], [1, 2, 2], [5, 5, 3], alignment=4)
    assert make_plan(problem, "linear_scan").offsets.tolist() == [0, 8, 0]
    fixed = make_problem([0, 0, 1], [1, 2, 2], [5, 5, 3], alignment=4, fixed=[FREE, 12, FREE])
    assert make_plan(fixed, "linear_scan").offsets.tolist() == [20, 12, 20]


def test_linear_scan_says_so_when_it_cannot():
    with pytest.raises(PlanError, match="linear_scan: fit top: a free list knows only best and first"):
        make_plan(make_problem([0], [1], [1]), LinearScan(FitRule.TOP))
    # Each of the three drives out the first once more.
    size = [2**61, 2**61, 2**61, 2**60]
    huge = make_problem([0, 1, 1, 1], [9, 8, 8, 8], size)
    with pytest.raises(PlanError, match=r"moved buffers up until offsets would pass 2\^63"):
        make_plan(huge, "linear_scan")


def test_linear_scan_packs_many_buffers_close_to_the_bound():
    random = np.random.default_rng(3)
    n = 40_000
    start = random.integers(0, n, n)
    problem = make_problem(
        start, start + random.integers(1, 500, n), random.integers(1, 10**6, n), alignment=64
    )
    plan = make_plan(problem, "linear_scan")
    assert plan.gap < 0.25


@pytest.mark.parametrize("name", list(known_strategies()))
def test_equal_lifetimes_of_distinct_buffers_stay_distinct(name):
    """The JIT planner gives every lifetime an id, lest its maps take two for one."""
    problem = make_problem([0, 2, 2, 2, 5], [2, 5, 5, 5, 6], [8, 16, 16, 16, 8], names="abcde")
    plan = make_plan(problem, name)
    assert validate_plan(plan).valid
    assert len(plan.offsets) == len(problem)
    assert len(set(plan.offsets[1:4].tolist())) == 3
    assert plan.arena_bytes >= 48
    if plan.objects is not None:
        assert len(set(plan.objects[1:4].tolist())) == 3


# Bytes at alignment 1. FIELD.md has these of both families: by size, improved, by breadth; and the bounds.
PAPER = {
    "mobilenet_v1_tflite": {
        "greedy_by_size": 4_816_896,
        "greedy_by_breadth": 4_816_896,
        "linear_scan": 6_422_528,
        "naive": 20_182_848,
        "shared_objects_by_size": 5_619_712,
        "shared_objects_by_size_improved": 4_816_896,
        "shared_objects_by_breadth": 4_816_896,
        "shared_objects_in_order": 4_816_896,
        "shared_objects_min_cost_flow": 5_619_712,
    },
    "mobilenet_v2_tflite": {
        "greedy_by_size": 6_021_120,
        "greedy_by_breadth": 6_021_120,
        "linear_scan": 8_028_160,
        "naive": 27_591_104,
        "shared_objects_by_size": 7_325_696,
        "shared_objects_by_size_improved": 7_024_640,
        "shared_objects_by_breadth": 7_225_344,
        "shared_objects_in_order": 8_429_568,
        "shared_objects_min_cost_flow": 7_877_632,
    },
}
BOUNDS = {
    "mobilenet_v1_tflite": (30, 4_816_896, 4_816_896),
    "mobilenet_v2_tflite": (65, 6_021_120, 6_924_288),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_comparison(name):
    problem = to_problem(load(memplan_examples.PATH / f"{name}.json"), alignment=1)
    plans = {strategy: make_plan(problem, strategy) for strategy in PAPER[name]}
    assert {strategy: plan.arena_bytes for strategy, plan in plans.items()} == PAPER[name]
    assert (len(problem), plans["naive"].bound.nbytes, shared_objects_bound(problem)) == BOUNDS[name]
    for plan in plans.values():
        if plan.objects is not None:
            assert object_summary(plan).objects_bytes == plan.arena_bytes
    # As FIELD.md prints them, in MiB.
    offsets, objects = {
        "mobilenet_v1_tflite": (["4.594", "4.594", "19.248"], ["5.359", "4.594", "4.594"]),
        "mobilenet_v2_tflite": (["5.742", "5.742", "26.313"], ["6.986", "6.699", "6.891"]),
    }[name]
    mib = {strategy: f"{plan.arena_bytes / 2**20:.3f}" for strategy, plan in plans.items()}
    assert [mib[s] for s in ("greedy_by_size", "greedy_by_breadth", "naive")] == offsets
    assert [mib[f"shared_objects_by_{s}"] for s in ("size", "size_improved", "breadth")] == objects


def test_mobilenet_v1_worked_by_hand():
    # conv 112×112×32, 13 × (depthwise, pointwise), pool, logits, softmax. The widest moment is at the second
    # op pair: 112×112×32 before and 112×112×64 after the first pointwise convolution.
    graph = mobilenet_v1()
    assert len(graph.ops) == 30
    assert BOUNDS["mobilenet_v1_tflite"][1] == 112 * 112 * (32 + 64) * 4
    sizes = {tensor.name: tensor.shape[1:] for tensor in graph.tensors}
    assert sizes["conv"] == (112, 112, 32)
    assert sizes["depthwise2"] == (56, 56, 64)
    assert sizes["pointwise13"] == (7, 7, 1024)
    assert sizes["softmax"] == (1, 1, 1000)


def test_mobilenet_v2_worked_by_hand():
    # The widest moment: the expansion of block 2, 112×112×96, with its depthwise result, 56×56×96, which is
    # as much as 112×112×24; its input is only 112×112×16.
    graph = mobilenet_v2()
    assert len(graph.ops) == 65
    assert [op.name for op in graph.ops if op.kind == "ADD"] == [
        f"add{block}" for block in (3, 5, 6, 8, 9, 10, 12, 13, 15, 16)
    ]
    assert BOUNDS["mobilenet_v2_tflite"][1] == 112 * 112 * (96 + 24) * 4
    sizes = {tensor.name: tensor.shape[1:] for tensor in graph.tensors}
    assert (sizes["project1"], sizes["expand2"]) == ((112, 112, 16), (112, 112, 96))
    assert (sizes["depthwise2"], sizes["features"]) == ((56, 56, 96), (7, 7, 1280))


def test_the_files_are_what_the_script_makes():
    assert load(memplan_examples.PATH / "mobilenet_v1_tflite.json") == mobilenet_v1()
    assert load(memplan_examples.PATH / "mobilenet_v2_tflite.json") == mobilenet_v2()
