"""Three answers, and whether they fit: worked by hand on a small recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memplan_engine.accelerators.presets import CONTEXT, GIB, NCCL, accelerator
from memplan_engine.allocator.answers import three_answers
from memplan_engine.allocator.segments import segments_at
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.allocator.simulated_recording import simulated_recording
from memplan_engine.allocator.simulation import simulate_allocator
from memplan_engine.files import load_recording
from memplan_engine.recordings.allocator_recording import SEGMENT, Action, Recording, reserved_over_time
from memplan_engine.recordings.cost import memory_over_time
from memplan_engine.recordings.observation import Level, Observation, ObservedOps, flow_changes
from memplan_engine.recordings.observed_flow import Category, Flow, ObservedStorages, Stage
from memplan_engine.recordings.recorded_problem import recorded_plan
from memplan_engine.reporters.allocator.answer_tables import settings_words
from memplan_engine.verdict import Reason, Verdict
from memplan_engine.verify.validate import validate_plan
from tests.allocator.test_simulation import GROWING, MIB, recording

EXAMPLE = Path(__file__).parents[2] / "example_graphs" / "cuda_snapshot.pickle"


def test_live_reserved_and_device_are_three_figures() -> None:
    answers = three_answers(GROWING, gpu=accelerator("h100-80"), communicators=2)
    assert answers.live_bytes == 74 * MIB
    assert answers.chosen.run.peak_reserved == 150 * MIB
    # An observation has no workspaces of cuBLAS: they are held beside it, 32 to 64 MiB a stream on sm_90.
    least = 150 * MIB + CONTEXT.least_bytes + 2 * NCCL.least_bytes + 32 * MIB
    most = 150 * MIB + CONTEXT.most_bytes + 2 * NCCL.most_bytes + 64 * MIB
    assert answers.chosen.total == (least, most)
    assert answers.chosen.verdict is Verdict.FITS
    assert answers.suggested is None


@pytest.mark.parametrize(
    ("beside", "verdict"),
    [
        # Left after the context: all that is reserved, enough with retries, with the least only, too little.
        (CONTEXT.most_bytes + 256 * MIB + 150 * MIB, Verdict.FITS),
        (CONTEXT.most_bytes + 256 * MIB + 100 * MIB, Verdict.FITS),
        (CONTEXT.most_bytes, Verdict.UNDECIDED),
        (CONTEXT.least_bytes + 20 * MIB, Verdict.DOES_NOT_FIT),
    ],
)
def test_whether_it_fits(beside: int, verdict: Verdict) -> None:
    answers = three_answers(GROWING, capacity=beside)
    assert answers.chosen.verdict is verdict
    assert (answers.chosen.reason is Reason.OTHERS_HOLD) == (verdict is Verdict.UNDECIDED)


def test_headroom_stays_free() -> None:
    capacity = CONTEXT.most_bytes + 256 * MIB + 150 * MIB
    assert three_answers(GROWING, capacity=capacity).chosen.verdict is Verdict.FITS
    with_headroom = three_answers(GROWING, capacity=capacity, headroom=GIB)
    assert with_headroom.chosen.verdict is not Verdict.FITS
    assert with_headroom.chosen.device is not None
    assert with_headroom.chosen.device.least_left == 0


def test_the_setting_that_makes_it_fit() -> None:
    # 24 MiB in use keep 24 of the cached 50 from any use; one growing range has no such rest.
    a, f = Action.ALLOC, Action.FREE_COMPLETED
    events = recording((a, 1, 50), (f, 1, 50), (a, 2, 26), (a, 3, 40))
    beside = CONTEXT.most_bytes + 204 * MIB
    answers = three_answers(events, capacity=beside + 80 * MIB)
    assert answers.chosen.verdict is not Verdict.FITS
    assert answers.suggested is not None
    assert answers.suggested.settings == parse_settings("expandable_segments:True")
    assert answers.suggested.run.is_rules_only
    # 50 and 40 MiB have segments of their own; the range grows to 66, by pages of 20.
    (first, *_) = answers.less_reserved
    assert (str(first.settings), first.run.peak_reserved) == ("expandable_segments:True", 80 * MIB)
    assert answers.chosen.run.peak_reserved == 90 * MIB
    reserved = [each.run.peak_reserved for each in answers.less_reserved]
    assert reserved == sorted(reserved)
    assert reserved[-1] < 90 * MIB


@pytest.mark.parametrize("text", ["", "expandable_segments:True"])
def test_a_simulated_run_is_a_recording_of_its_own(text: str) -> None:
    (found,) = load_recording(EXAMPLE).recordings
    run = simulate_allocator(found, parse_settings(text))
    again = simulated_recording(run)
    assert int(memory_over_time(again).live.max()) == run.peak_requested
    # The request that failed was tried, and is none of its allocations.
    reserved = int(reserved_over_time(again).max())
    assert reserved == run.peak_reserved
    plan = recorded_plan(again)
    validate_plan(plan)
    assert plan.arena_bytes >= run.peak_requested


def observed_step() -> Observation:
    """A weight of 30 MiB that was there, and a tensor of 40 MiB that an op makes."""
    flow_storages = ObservedStorages(
        ("weight", ""),
        np.array([30 * MIB, 40 * MIB]),
        (Category.WEIGHT, Category.TEMPORARY),
        np.array([-1, 0]),
        np.array([-1, 0]),
        ((1,), (1,)),
        ("float32", "float32"),
        np.array([-1, -1]),
    )
    flow = Flow(
        *((((0,),), ((),), ((1,),), (Stage.FORWARD,), ("",))),
        *(np.array([-1]), (), np.array([-1]), np.array([0]), flow_storages),
    )
    ops = ObservedOps(("mm",), ("aten.mm",), np.array([0]), np.array([1]), np.array([-1]))
    return Observation("seen", ops, {Level.DISPATCH: flow_changes(flow, ops)}, flow=flow)


def test_what_was_there_before_a_run_is_allocated_first() -> None:
    observation = observed_step()
    answers = three_answers(observation)
    assert (answers.live_bytes, answers.chosen.run.peak_reserved) == (70 * MIB, 70 * MIB)
    assert any("temporaries" in note for note in answers.notes)


def test_a_run_whose_weights_are_not_in_the_file_fits_nowhere_for_certain() -> None:
    seen = replace(observed_step(), flow=None)
    answers = three_answers(seen, capacity=80 * GIB)
    assert (answers.live_bytes, answers.others) == (40 * MIB, ())
    assert (answers.chosen.verdict, answers.chosen.reason) == (Verdict.UNDECIDED, Reason.PARTIAL)
    assert three_answers(seen, capacity=300 * MIB).chosen.verdict is Verdict.DOES_NOT_FIT
    assert three_answers(observed_step(), capacity=80 * GIB).chosen.verdict is Verdict.FITS


def test_the_python_of_a_compiled_run_decides_nothing() -> None:
    seen = observed_step()
    assert seen.flow is not None
    compiled = replace(seen, flow=replace(seen.flow, compiled=True))
    for capacity in (80 * GIB, 50 * MIB):
        chosen = three_answers(compiled, capacity=capacity).chosen
        assert (chosen.verdict, chosen.reason) == (Verdict.UNDECIDED, Reason.COMPILED)
    assert three_answers(seen, capacity=50 * MIB).chosen.verdict is Verdict.DOES_NOT_FIT


@pytest.mark.parametrize("text", ["", "max_split_size_mb:20", "expandable_segments:True"])
@pytest.mark.parametrize("capacity", [None, 1430 << 20])
def test_segments_hold_what_is_reserved_and_active(text: str, capacity: int | None) -> None:
    (found,) = load_recording(EXAMPLE).recordings
    run = simulate_allocator(found, parse_settings(text), capacity=capacity)
    for step in (0, 500, int(run.reserved.argmax()), run.ended - 1):
        segments = segments_at(run, step)
        assert sum(each.nbytes for each in segments) == run.reserved[step]
        assert sum(each.used for each in segments) == run.active[step]
        for segment in segments:
            ends = [block.offset + block.nbytes for block in segment.blocks]
            assert all(end <= block.offset for end, block in zip(ends, segment.blocks[1:], strict=False))
            assert all(end <= segment.nbytes for end in ends)


A, F, OOM, SEGMENT_ALLOC = Action.ALLOC, Action.FREE_COMPLETED, Action.OOM, Action.SEGMENT_ALLOC


def out_of_memory(asked: int, free: int, **choices: Any) -> Recording:
    """50 MiB, given back; 26 of them in use again; then a request for `asked` MiB fails, and `free` MiB are
    free on the device."""
    found = recording((SEGMENT_ALLOC, 1, 50), (A, 1, 50), (F, 1, 50), (A, 1, 26), (OOM, 0, asked))
    found.events["address"][-1] = free * MIB
    return replace(found, **choices)


def test_the_device_of_a_recorded_failure_is_what_was_reserved_and_free() -> None:
    answers = three_answers(out_of_memory(40, 30))
    device = answers.chosen.device
    assert device is not None
    assert (device.total_bytes, device.least_overhead, device.is_recorded) == (80 * MIB, 0, True)
    # 24 MiB are cached behind the 26: too few, and in the way of giving the segment back.
    assert answers.chosen.verdict is Verdict.DOES_NOT_FIT
    (failure,) = answers.chosen.on_device.failures  # type: ignore[union-attr]
    assert failure.was_recorded
    # One range: 34 of 60 mapped MiB are free in one piece, and a page of 20 more makes 54.
    advice = answers.advice
    assert (str(advice.settings), advice.reserved, advice.saved) == (
        *("expandable_segments:True", 80 * MIB),
        10 * MIB,
    )
    assert (advice.failed, advice.is_rules_only, advice.out_of_reach) == (True, True, None)
    assert not any("simulated as recorded" in note for note in answers.notes)
    with_headroom = three_answers(out_of_memory(40, 30), headroom=MIB)
    assert with_headroom.advice.settings is None


def test_what_no_setting_can_meet_says_what_there_is() -> None:
    advice = three_answers(out_of_memory(40, 3)).advice
    # 26 and 40 live, 50 reserved and 3 free.
    assert (advice.out_of_reach, advice.left) == (66 * MIB, 53 * MIB)
    words = "no setting can meet it: 66 MiB would be live, and the allocator can have 53 MiB"
    assert settings_words(advice) == words


def test_a_fraction_of_the_device_is_taken_once() -> None:
    """The same failure where the process may have half, and much more is free."""
    answers = three_answers(out_of_memory(40, 1000, settings="per_process_memory_fraction:0.5"))
    device, run = answers.chosen.device, answers.chosen.on_device
    assert device is not None
    assert run is not None
    # 50 are reserved, and 40 more, less a byte, would have been met.
    assert device.total_bytes == 2 * (90 * MIB - 1)
    (failure,) = run.failures
    assert (failure.allowed, failure.was_recorded) == (90 * MIB - 1, True)
    assert not any("simulated as recorded" in note for note in answers.notes)
    # The advice keeps the fraction: 34 of 60 mapped MiB are free in one piece, and a page of 20 makes 54.
    assert str(answers.advice.settings) == "expandable_segments:True,per_process_memory_fraction:0.5"
    assert answers.advice.reserved == 80 * MIB


def test_a_device_that_is_named_is_another_one() -> None:
    answers = three_answers(out_of_memory(40, 30), gpu=accelerator("h100-80"))
    assert answers.chosen.device is not None
    assert not answers.chosen.device.is_recorded
    assert (answers.chosen.verdict, answers.advice.failed) == (Verdict.FITS, False)


def test_what_was_free_and_of_no_use_is_not_counted() -> None:
    device = three_answers(out_of_memory(40, 200)).chosen.device
    assert device is not None
    assert device.total_bytes == 90 * MIB - 1
    # Pages of 20 MiB: for 40 MiB 40 had to be free, for 41 MiB 60.
    for asked, wanted in ((40, 40), (41, 60)):
        expanding = out_of_memory(asked, 200, settings="expandable_segments:True")
        device = three_answers(expanding).chosen.device
        assert device is not None
        assert device.total_bytes == (50 + wanted) * MIB - 1


def test_no_setting_makes_room_for_more_than_there_is() -> None:
    answers = three_answers(out_of_memory(60, 30))
    assert answers.advice.out_of_reach == 86 * MIB
    assert answers.advice.settings is None
    assert three_answers(out_of_memory(54, 30)).advice.out_of_reach is None


def test_of_several_failures_the_device_is_the_least() -> None:
    twice = out_of_memory(40, 30)
    events = np.concatenate([twice.events, twice.events[-1:]])
    events["address"][-1] = 20 * MIB
    device = three_answers(replace(twice, events=events)).chosen.device
    assert device is not None
    assert device.total_bytes == 70 * MIB
    assert "20 MiB free when a request failed at step 6" in device.source


def test_a_failure_that_the_simulation_does_not_have_is_said() -> None:
    # A hundred MiB were reserved, as nothing in the recording explains.
    events = recording((SEGMENT_ALLOC, 1, 100), (A, 1, 26), (OOM, 0, 40))
    events.events["address"][-1] = 0
    answers = three_answers(events)
    assert answers.chosen.verdict is Verdict.FITS
    assert any("simulated as recorded, the request that failed is met" in note for note in answers.notes)


def test_the_settings_are_those_of_the_recording() -> None:
    def chosen(**choices: Any) -> str:
        return str(three_answers(out_of_memory(40, 30, **choices)).chosen.settings)

    assert chosen() == ""
    assert chosen(settings="max_split_size_mb:64") == "max_split_size_mb:64"
    segments = np.zeros(1, SEGMENT)
    segments["size"], segments["expandable"] = 50 * MIB, True
    assert chosen(segments=segments) == "expandable_segments:True"
    other = three_answers(out_of_memory(40, 30, settings="backend:cudaMallocAsync"))
    assert str(other.chosen.settings) == ""
    assert any("not understood" in note and "cudaMallocAsync" in note for note in other.notes)
    asked = three_answers(out_of_memory(40, 30, settings="max_split_size_mb:64"), parse_settings(""))
    assert str(asked.chosen.settings) == ""
    assert "max_split_size_mb:64" in [str(each.settings) for each in asked.others]
