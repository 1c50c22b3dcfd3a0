"""Steps that reach the same peak, and peaks that stand out, against every step counted one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import load, make_problem, to_problem
from memplan_engine.analysis.tied_peaks import TiedPeak, layer_of, local_peaks, repeated, tied_peaks
from memplan_engine.problem import Problem
from memplan_engine.profile import bytes_held
from tests.advice.test_advise import layers


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    spans = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6), st.integers(1, 4)), min_size=1))
    start, length, size = zip(*spans, strict=True)
    return make_problem(start, [a + b for a, b in zip(start, length, strict=True)], size)


def heights(problem: Problem) -> list[int]:
    """The live bytes of every step."""
    return [int(bytes_held(problem, step).sum()) for step in range(problem.steps)]


def test_layers_that_reach_the_same_peak_are_named_once_each() -> None:
    assert tied_peaks(to_problem(layers(3), alignment=1)) == (
        TiedPeak(1, 1280, "net.layers.0", 1),
        TiedPeak(2, 1280, "net.layers.1", 2),
        TiedPeak(4, 1280, "net.layers.2", 2),
    )


def test_all_twelve_layers_of_gpt2_reach_its_peak() -> None:
    problem = to_problem(load(Path("example_graphs/gpt2.json")))
    peaks = tied_peaks(problem)
    assert [each.module for each in peaks] == [f"transformer.h.{number}" for number in range(12)]
    assert {(each.nbytes, each.steps) for each in peaks} == {(53_477_376, 2)}
    assert set(local_peaks(problem).tolist()) > {each.step for each in peaks}


@given(problems())
def test_tied_peaks_are_all_the_steps_of_most_bytes(problem: Problem) -> None:
    live = heights(problem)
    expected = [step for step, nbytes in enumerate(live) if nbytes == max(live)]
    found = [step for peak in tied_peaks(problem) for step in range(peak.step, peak.step + peak.steps)]
    assert found == expected


@given(problems(), st.sampled_from([0.05, 0.3, 0.6]))
def test_local_peaks_stand_out_on_both_sides(problem: Problem, prominence: float) -> None:
    live = [0, *heights(problem), 0]
    least = max(prominence * max(live), 1)
    expected = []
    for step in range(1, len(live) - 1):
        before = next((at for at in range(step - 1, -1, -1) if live[at] >= live[step]), 0)
        after = next((at for at in range(step + 1, len(live)) if live[at] > live[step]), len(live) - 1)
        fall = (live[step] - min(live[before:step]), live[step] - min(live[step + 1 : after + 1]))
        if min(fall) >= least:
            expected.append(step - 1)
    assert local_peaks(problem, prominence).tolist() == expected


@pytest.mark.parametrize(
    ("module", "layer", "pattern"),
    [
        ("transformer.h.10.mlp.act", "transformer.h.10", "transformer.h.*.mlp.act"),
        ("mobilenet_v2.layer.0.conv_3x3", "mobilenet_v2.layer.0", "mobilenet_v2.layer.*.conv_3x3"),
        ("lm_head", "lm_head", "lm_head"),
        ("0.1", "0", "*.*"),
        ("", "", ""),
    ],
)
def test_numbers_between_dots_count_layers(module: str, layer: str, pattern: str) -> None:
    assert (layer_of(module), repeated(module)) == (layer, pattern)


def test_nothing_has_no_peak() -> None:
    empty = make_problem([], [], [])
    assert tied_peaks(empty) == ()
    assert local_peaks(empty).tolist() == []
