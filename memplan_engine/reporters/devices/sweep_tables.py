"""Configurations of a script side by side: as plain values for machines, as Rich renderables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from memplan_engine.devices.rank_answers import DeviceAnswers
from memplan_engine.devices.sweep_answers import (
    ConfigurationAnswer,
    by_fullest,
    change_of,
    largest_fitting,
)
from memplan_engine.recordings.configuration import named
from memplan_engine.reporters.rich_tables import make_table, numbers, plain_text
from memplan_engine.units import format_bytes

FAILED = "failed"


def sweep_summary(answers: Sequence[ConfigurationAnswer], largest: str, complete: bool) -> dict[str, Any]:
    """For machines: a row for each configuration, that whose fullest rank reserves least first; savings are
    against the first of `answers` that ran. `largest` is the name whose largest value that fits is told."""
    first = _first(answers)
    return {
        "complete": complete,
        "against": None if first is None else first.configuration.values,
        "configurations": [_row(each, first) for each in by_fullest(answers)],
        "largest": [
            {"values": others, "name": largest, "largest": best}
            for others, best in (largest_fitting(answers, largest) if largest else ())
        ],
    }


def _first(answers: Sequence[ConfigurationAnswer]) -> ConfigurationAnswer | None:
    return next((each for each in answers if each.answers is not None), None)


def _row(answer: ConfigurationAnswer, first: ConfigurationAnswer | None) -> dict[str, Any]:
    asked, answers = answer.configuration, answer.answers
    row: dict[str, Any] = {
        "values": asked.values,
        "arguments": list(asked.arguments),
        "world_size": asked.world_size,
        "device": answer.gpu.name,
    }
    if answers is None:
        return {**row, "verdict": FAILED, "error": asked.error}
    fullest = answers.fullest
    assert first is not None
    assert first.answers is not None
    return {
        **row,
        "fullest_rank": fullest.run.rank,
        "live_bytes": fullest.answers.live_bytes,
        "reserved_bytes": fullest.reserved_bytes,
        "device_total_bytes": list(fullest.total_bytes),
        "verdict": fullest.verdict,
        "reason": fullest.reason,
        "peak_source": fullest.peak[1],
        "saved_bytes": change_of(first.answers, answers).saved_bytes,
    }


def sweep_tables(
    answers: Sequence[ConfigurationAnswer], largest: str, complete: bool
) -> list[RenderableType]:
    """Configurations by their fullest ranks, the largest values that fit, and what failed with its reason."""
    first = _first(answers)
    ran = [each for each in by_fullest(answers) if each.answers is not None]
    rows = [_cells(each, first) for each in ran]
    figures = numbers("live", "reserved", "device total", "saved")
    heads = ["configuration", "devices", "fullest rank", *figures, "verdict", "most live at"]
    shown: list[RenderableType] = [make_table(heads, rows)] if rows else []
    if largest:
        found = largest_fitting(answers, largest)
        # None fits is an answer, too.
        fitting = [[named(others) or "all", "none" if best is None else str(best)] for others, best in found]
        shown.append(make_table(["configuration", *numbers(f"largest {largest} that fits")], fitting))
    if first is not None and len(rows) > 1:
        name = first.configuration.name
        shown.append(
            plain_text(f"note: saved is the change of the fullest rank's reserved bytes against {name}")
        )
    shown += [
        plain_text(f"failed: {each.configuration.name}: {each.configuration.error}")
        for each in answers
        if each.answers is None
    ]
    if not complete:
        shown.append(plain_text("ended before all configurations were recorded; what was is kept"))
    return shown


def _cells(answer: ConfigurationAnswer, first: ConfigurationAnswer | None) -> list[str]:
    answers = answer.answers
    assert answers is not None
    assert first is not None
    fullest = answers.fullest
    low, high = map(format_bytes, fullest.total_bytes)
    return [
        answer.configuration.name or "all",
        f"{answer.configuration.world_size:,} of {answer.gpu.name}",
        str(fullest.run.rank),
        format_bytes(fullest.answers.live_bytes),
        format_bytes(fullest.reserved_bytes),
        f"{low} to {high}",
        "" if answer is first else _saved(first.answers, answers),
        fullest.verdict,
        " at ".join(part for part in fullest.peak if part),
    ]


def _saved(before: DeviceAnswers | None, after: DeviceAnswers) -> str:
    """ "1.2 GiB, rank 7 leads, was rank 0"."""
    assert before is not None
    change = change_of(before, after)
    sign = "−" if change.saved_bytes < 0 else ""
    said = f"{sign}{format_bytes(abs(change.saved_bytes))}"
    old, new = change.before.run.rank, change.after.run.rank
    return said if old == new else f"{said}, rank {new} leads, was rank {old}"
