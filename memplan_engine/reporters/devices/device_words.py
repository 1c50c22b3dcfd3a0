"""The verdict on ranks in a sentence, for the command line and the page Devices."""

from __future__ import annotations

from memplan_engine.accelerators.presets import Accelerator
from memplan_engine.devices.rank_answers import DeviceAnswers, RankAnswer
from memplan_engine.devices.rank_timeline import ops_of_events, place_of
from memplan_engine.recordings.observed_flow import flow_peak
from memplan_engine.units import format_bytes
from memplan_engine.verdict import Verdict, verdict_text

BEFORE_ALL = "before the first op"
"""Where a rank runs out whose weights alone are too large."""


def failed_op(answer: RankAnswer) -> int | None:
    """The op whose request is the first that the device does not meet; None where all are met."""
    run = answer.answers.chosen.on_device
    if run is None or run.fits:
        return None
    ops = ops_of_events(run.recording, answer.run.observation)
    return int(ops[min(run.failures[0].event, len(ops) - 1)])


def where_text(answer: RankAnswer) -> str:
    """Where it runs out, or where most is live."""
    flow = answer.run.observation.flow
    failed = failed_op(answer)
    op = failed if failed is not None else -1 if flow is None else flow_peak(flow)[1]
    return place_of(answer.run.observation, op) or BEFORE_ALL


def device_headline(answers: DeviceAnswers, gpu: Accelerator) -> tuple[str, str]:
    """The verdict and what it rests on: "does not fit", "rank 3 runs out first, 81.9 GiB reserved of …"."""
    fullest = answers.fullest
    rank, reserved = f"rank {fullest.run.rank}", format_bytes(fullest.reserved_bytes)
    usable = format_bytes(gpu.usable_bytes)
    verdict = verdict_text(fullest.verdict, fullest.reason)
    if fullest.verdict is Verdict.DOES_NOT_FIT:
        device, where = fullest.answers.chosen.device, where_text(fullest)
        assert device is not None
        left = f"{format_bytes(device.most_left)} left of {usable}"
        at = where if where == BEFORE_ALL else f"at {where}"
        return verdict, f"{rank} runs out first, {reserved} to reserve, at most {left}, {at}"
    low, high = map(format_bytes, fullest.total_bytes)
    told = f"{rank} is the fullest, {low} to {high} of its device, {reserved} of that reserved"
    return verdict, told
