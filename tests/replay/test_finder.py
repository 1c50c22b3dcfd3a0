"""What found a portfolio's plan, replayed: the same offsets again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from memplan_examples import PATH

from memplan_engine import finder, load, make_plan, make_problem, make_replay
from memplan_engine.replay.finder import found_by
from memplan_engine.strategies.base import SolveLimits

NODES = 1_000_000


@pytest.mark.parametrize(
    "name",
    ["squeezenet.onnx", "gpt2.json", "teaching_gaps.csv", "teaching_first_fit.csv", "unet_training.csv"],
)
def test_the_finders_replay_ends_with_the_portfolios_plan(name):
    source = load(PATH / name)
    plan = make_plan(source, "auto", limits=SolveLimits(nodes=0 if "unet" in name else NODES))
    strategy = finder(plan)
    assert strategy is not None
    assert make_replay(plan.problem, strategy).plan.offsets.tolist() == plan.offsets.tolist()


@pytest.mark.parametrize(
    ("told", "began", "since", "strategy"),
    [
        ("size × best fit", "size × best fit", "", "size × best fit"),
        (
            "heat × best fit, repaired, windows packed",
            "heat × best fit",
            "repaired, windows packed",
            "heat × best fit",
        ),
        ("linear scan", "linear scan", "", "linear_scan"),
        ("branch and bound", "branch and bound", "", "exact"),
        ("slots", "slots", "", None),
        ("", "", "", None),
    ],
)
def test_the_beginning_and_what_was_done_since(told, began, since, strategy):
    plan = replace(make_plan(make_problem([0], [1], [4]), "naive"), parameters=(("found_by", told),))
    assert found_by(plan) == (began, since)
    found = finder(plan)
    assert (found and found.name) == strategy
