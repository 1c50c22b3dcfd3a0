"""What a caching allocator would reserve: as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table

from memplan_engine.allocator.answers import Answers, SettingsAdvice, SettingsAnswer
from memplan_engine.allocator.device import Device
from memplan_engine.allocator.settings import VARIABLE
from memplan_engine.allocator.simulation import OutOfMemory
from memplan_engine.recordings.allocator_recording import partial_words, reserved_over_time
from memplan_engine.recordings.cost import OverTime, thinned
from memplan_engine.reporters.rich_tables import label_table, make_table, numbers, plain_text
from memplan_engine.scope import assumed_summary
from memplan_engine.units import exact, format_bytes, format_percent, format_signed
from memplan_engine.verdict import Reason, Verdict, verdict_text

LIVE_IN_DOUBT = {
    Reason.PARTIAL: "at least, of a part of a run",
    Reason.COMPILED: "of the eager Python of a compiled run",
    Reason.ASSUMED: "with assumed values",
}
MOST_POINTS = 2_000
MOST_FAILURES = 3
SIMULATED, RULES_ONLY, RECORDED_MORE = "simulated", "rules only", "as recorded"


def basis(answer: SettingsAnswer) -> str:
    """Return what an answer rests on: rules compared with recordings, rules alone, or, where a partial
    recording had more than either gives, what it says."""
    if answer.reserved > answer.run.peak_reserved:
        return RECORDED_MORE
    return RULES_ONLY if answer.run.is_rules_only else SIMULATED


def live_basis(answers: Answers) -> str:
    """Return "exact", or what the live bytes are where a run may hold something else."""
    doubt = answers.chosen.recording.doubt
    return LIVE_IN_DOUBT.get(doubt, "exact") if doubt else "exact"


def answers_summary(answers: Answers, what_if: bool = True) -> dict[str, Any]:
    """The three answers and what else was tried; byte counts are exact integers, step k is after the k-th
    event."""
    chosen, device = answers.chosen, answers.chosen.device
    suggested = answers.suggested if what_if else None
    return {
        "name": answers.name,
        "partial": list(answers.partial),
        "doubt": chosen.recording.doubt,
        **assumed_summary(chosen.recording.basis),
        "live_bytes": answers.live_bytes,
        "device": None if device is None else _device(device),
        **_settings(chosen, answers.live_bytes),
        "reserved_least_bytes": answers.reserved[0],
        "over_time": _over_time(chosen),
        "what_if": [_settings(other, answers.live_bytes) for other in answers.others] if what_if else [],
        "suggested_settings": None if suggested is None else str(suggested.settings),
        "out_of_reach_bytes": answers.out_of_reach,
        "notes": list(answers.notes),
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "total_bytes": device.total_bytes,
        "source": device.source,
        "is_recorded": device.is_recorded,
        "headroom_bytes": device.headroom,
        "overheads": [
            {
                "name": overhead.name,
                "count": count,
                "per": overhead.per,
                "least_bytes": count * overhead.least_bytes,
                "most_bytes": count * overhead.most_bytes,
                "source": overhead.source,
            }
            for overhead, count in device.overheads
        ],
    }


def _settings(answer: SettingsAnswer, live: int) -> dict[str, Any]:
    run, on_device = answer.run, answer.on_device
    total = answer.total
    return {
        "settings": str(answer.settings),
        "basis": basis(answer),
        "reserved_bytes": answer.reserved,
        "active_bytes": run.peak_active,
        "fragmentation_bytes": None if answer.recording.partial else run.peak_reserved - live,
        "segments": int((run.log[:, 2] > 0).sum()),
        "device_least_bytes": None if total is None else total[0],
        "device_most_bytes": None if total is None else total[1],
        "verdict": answer.verdict,
        "reason": answer.reason,
        "retries": 0 if on_device is None else on_device.retries,
        "out_of_memory": [] if on_device is None else [_failure(each, answer) for each in on_device.failures],
    }


def _failure(failure: OutOfMemory, answer: SettingsAnswer) -> dict[str, Any]:
    stacks = answer.recording.stacks
    return {
        "step": failure.event + 1,
        "asked_bytes": failure.asked,
        "asked_by": stacks.caller(failure.stack).label if failure.stack >= 0 else "",
        "reserved_bytes": failure.reserved,
        "allocated_bytes": failure.allocated,
        "device_free_bytes": failure.device_free,
        "was_recorded": failure.was_recorded,
        "message": message_of(failure, answer),
    }


def message_of(failure: OutOfMemory, answer: SettingsAnswer) -> str:
    """What torch would say of it on that device; "" where all of its memory is not known."""
    if answer.device is not None and answer.device.is_recorded:
        return ""
    total = None if answer.device is None else answer.device.total_bytes
    return failure.message(answer.recording.device, total)


def _over_time(answer: SettingsAnswer) -> dict[str, list[int]]:
    """Return from each step to the next the most bytes, MOST_POINTS steps at most."""
    run, held = answer.run, answer.run.reserved
    if answer.recording.partial:
        held = np.maximum(held, reserved_over_time(answer.recording))
    begin, live, reserved = thinned(OverTime(run.requested, held, (), True), MOST_POINTS)
    _, allocated, active = thinned(OverTime(run.allocated, run.active, (), True), MOST_POINTS)
    columns = {"step": begin, "live_bytes": live, "allocated_bytes": allocated, "active_bytes": active}
    return {name: column.tolist() for name, column in {**columns, "reserved_bytes": reserved}.items()}


def answers_tables(answers: Answers, what_if: bool = True) -> list[RenderableType]:
    """The three answers, whether it fits, what other settings change, and what the figures leave out."""
    chosen = answers.chosen
    parts: list[RenderableType] = [_three(answers)]
    if chosen.on_device is not None:
        messages = [message_of(each, chosen) for each in chosen.on_device.failures[:MOST_FAILURES]]
        parts += [plain_text(message) for message in messages if message]
    if what_if and answers.others:
        parts.append(_what_if(answers))
    if what_if and answers.suggested is not None:
        parts.append(plain_text(f'try  {VARIABLE}="{answers.suggested.settings}"', "bold"))
    if what_if and answers.advice.failed and (answers.others or answers.out_of_reach is not None):
        parts.append(plain_text(settings_words(answers.advice)))
    parts += [plain_text(f"note: {note}") for note in answers.notes]
    return parts


def _three(answers: Answers) -> Table:
    chosen, run, device = answers.chosen, answers.chosen.run, answers.chosen.device
    lost = chosen.reserved - answers.live_bytes
    share = format_percent(lost / chosen.reserved) if chosen.reserved else format_percent(0)
    under = f"under {chosen.settings.words} ({basis(chosen)})"
    live = f"{exact(answers.live_bytes)} at once, as tensors asked for them ({live_basis(answers)})"
    reserved = f"{_reserved(answers)} {under}"
    rows = [
        ("simulated", f"{answers.name}: {len(run.recording.events):,} events, {chosen.settings.words}"),
        ("live", live),
        ("reserved", f"at least {reserved}" if answers.partial else f"{reserved}, {share} of it never live"),
    ]
    if answers.partial:
        rows.insert(1, ("partial", partial_words(answers.partial)))
    if device is not None and chosen.total is not None:
        if device.overheads:
            total = " to ".join(map(format_bytes, chosen.total))
            least = "at least " * bool(answers.partial)
            rows.append(("device total", f"{least}{total}, with what is held beside"))
        for overhead, count in device.overheads:
            low, high = (format_bytes(count * each) for each in (overhead.least_bytes, overhead.most_bytes))
            rows.append((f"  {overhead.name}", f"{low} to {high} ({overhead.source})"))
        rows.append((device.name, _capacity(device)))
        rows.append(("verdict", verdict_words(chosen)))
    return label_table(rows)


def settings_words(advice: SettingsAdvice) -> str:
    """What other settings do for a request that failed, or for what is reserved."""
    if advice.failed and advice.out_of_reach is not None:
        live, left = format_bytes(advice.out_of_reach), format_bytes(advice.left or 0)
        return f"no setting can meet it: {live} would be live, and the allocator can have {left}"
    if advice.of_a_part:
        return "what other allocator settings would do is unknown: the recording is partial"
    if advice.settings is None:
        nothing = "meets it for certain" if advice.failed else "reserves less"
        return f"none of the allocator settings that were simulated {nothing}"
    words, rests_on = advice.settings.words, RULES_ONLY if advice.is_rules_only else SIMULATED
    if advice.failed:
        after = "; what would have been asked for after it is not recorded" if advice.is_recorded else ""
        return f"with {words} the request is met ({rests_on}){after}"
    least = format_bytes(advice.reserved)
    return f"−{format_bytes(advice.saved)} reserved with {words}: {least}, {rests_on}"


def _reserved(answers: Answers) -> str:
    least, most = answers.reserved
    return exact(most) if least == most else f"{exact(least)} to {exact(most)}"


def _capacity(device: Device) -> str:
    headroom = f", {format_bytes(device.headroom)} of it to stay free" if device.headroom else ""
    return f"{format_bytes(device.total_bytes)}{headroom} ({device.source})"


def verdict_words(answer: SettingsAnswer) -> str:
    """Whether it fits on its device, and what does not."""
    run, verdict = answer.on_device, answer.verdict
    if run is None or verdict is None:
        return "no device"
    words = verdict_text(verdict, answer.reason)
    again = f", after what was cached had to go back {run.retries:,} ×" if run.retries else ""
    if verdict is Verdict.DOES_NOT_FIT and run.fits:
        return f"{words}: {format_bytes(answer.least_reserved)} were held at once in the recording"
    if verdict is Verdict.DOES_NOT_FIT:
        failure = run.failures[0]
        again = ", as recorded" if failure.was_recorded else ""
        where = f"asked for at step {failure.event + 1:,} cannot be met{again}"
        return f"{words}: {format_bytes(failure.asked)} {where}"
    return f"{words}{again}"


def settings_columns(answers: Answers) -> dict[str, list[Any]]:
    """The chosen settings and below them what else was tried, with the difference that it makes: a list for
    each column, exact `bytes` among them, `verdict` where there is a device."""
    every = (answers.chosen, *answers.others)
    base = answers.chosen.reserved
    changes = [format_signed(each.reserved - base) for each in answers.others]
    columns: dict[str, list[Any]] = {
        "settings": [each.settings.words for each in every],
        "reserved": [format_bytes(each.reserved) for each in every],
        "bytes": [each.reserved for each in every],
        "change": ["", *changes],
        "basis": [basis(each) for each in every],
    }
    if answers.chosen.device is not None:
        columns["verdict"] = [str(each.verdict) for each in every]
    return columns


def _what_if(answers: Answers) -> Table:
    columns = {name: column for name, column in settings_columns(answers).items() if name != "bytes"}
    right = dict(zip(("reserved", "change"), numbers("reserved", "change"), strict=True))
    rows = list(zip(*columns.values(), strict=True))
    return make_table([right.get(name, name) for name in columns], rows, "what if")
