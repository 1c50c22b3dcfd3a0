"""`memplan allocator`: three answers, what else was tried, and one line for what cannot be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memplan_engine import load, validate_plan
from memplan_engine.accelerators.presets import CONTEXT

EXAMPLE = Path(__file__).parents[2] / "example_graphs" / "cuda_snapshot.pickle"


def test_three_answers_and_what_else_was_tried(memplan):
    code, out, _ = memplan("allocator", EXAMPLE, "--device", "h100-80", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["live_bytes"] == 1_450_180_608
    assert said["reserved_bytes"] >= said["active_bytes"] >= said["live_bytes"]
    assert said["device_least_bytes"] == said["reserved_bytes"] + CONTEXT.least_bytes
    assert (said["basis"], said["verdict"], said["reason"]) == ("simulated", "fits", None)
    rules_only = [each["settings"] for each in said["what_if"] if each["basis"] == "rules only"]
    assert rules_only == ["expandable_segments:True"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--setting", "max_split:3"), "--setting: found 'max_split', expected one of max_split_size_mb"),
        (("--device", "h900"), "--device: found 'h900', expected one of rtx4090"),
        (("--capacity", "many"), "--capacity"),
        (("--headroom", "-1"), "--headroom"),
        (("-o", "plan.txt"), "plan.txt"),
        (("--card", "7"), "device: found 7"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(memplan, arguments, says):
    code, out, err = memplan("allocator", EXAMPLE, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_for_people(memplan):
    code, out, _ = memplan("allocator", EXAMPLE, "-s", "expandable_segments:True", "--capacity", "100MiB")
    assert code == 1  # it does not fit
    assert "1.35 GiB (1,450,180,608 B) at once, as tensors asked for them (exact)" in out
    assert "under expandable_segments:True (rules only)" in out
    assert "verdict" in out
    assert "does not fit" in out
    assert "CUDA out of memory. Tried to allocate" in out


def test_the_placement_is_a_plan(memplan, tmp_path):
    code, _, _ = memplan("allocator", EXAMPLE, "-o", tmp_path / "placed.json")
    assert code == 0
    plan = load(tmp_path / "placed.json")
    assert validate_plan(plan).valid
    assert plan.arena_bytes >= 1_450_180_608


def test_a_recorded_out_of_memory_is_tried_with_other_settings(memplan):
    code, out, _ = memplan("allocator", EXAMPLE)
    assert code == 0  # no device was asked for
    assert "recorded device  1.42 GiB (1.4 GiB reserved and 20 MiB free when a request failed" in out
    assert "does not fit: 24 MiB asked for at step 1,952 cannot be met, as recorded" in out
    assert 'PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"' in out
    assert "with expandable_segments:True the request is met (rules only)" in out
    assert "total capacity" not in out  # which nobody knows
    said = json.loads(memplan("allocator", EXAMPLE, "--json")[1])
    assert (said["device"]["is_recorded"], said["device"]["overheads"]) == (True, [])
    assert said["device"]["total_bytes"] == said["out_of_memory"][0]["reserved_bytes"] + 22 * 2**20
    assert said["suggested_settings"] == "expandable_segments:True"
    assert said["out_of_reach_bytes"] is None
