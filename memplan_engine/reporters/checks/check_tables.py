"""Models held against what they may need, as a table for people and as plain values for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.reporters.checks.check_words import growth_words, sentences, verdict_word
from memplan_engine.reporters.diff_tables import diff_summary
from memplan_engine.reporters.rich_tables import make_table, numbers, plain_text
from memplan_engine.units import format_bytes


def check_tables(checks: Sequence[ModelCheck]) -> Iterator[RenderableType]:
    """A row a model; below, why each of those fails that do."""
    rows = [
        (
            each.name,
            format_bytes(each.figures.arena),
            format_bytes(each.peak.nbytes),
            growth_words(each),
            verdict_word(each),
        )
        for each in checks
    ]
    yield make_table(("model", *numbers("arena", "peak"), "arena since the base", "verdict"), rows, "", ())
    for each in checks:
        for sentence in sentences(each):
            yield plain_text(f"{each.name}: {sentence}")


def check_summary(checks: Sequence[ModelCheck]) -> dict[str, Any]:
    """The same with exact bytes, and the whole diff of what is compared."""
    return {"passed": all(each.passed for each in checks), "models": [_summary(each) for each in checks]}


def _summary(checked: ModelCheck) -> dict[str, Any]:
    limits = checked.ceilings
    return {
        "model": checked.name,
        "passed": checked.passed,
        "arena_bytes": checked.figures.arena,
        "peak_bytes": checked.peak.nbytes,
        "reserved_bytes": checked.reserved,
        "max_arena_bytes": limits.arena,
        "max_peak_bytes": limits.peak,
        "max_reserved_bytes": limits.reserved,
        "optimal": checked.figures.optimal,
        "sentences": list(sentences(checked)),
        "diff": diff_summary(checked.diff, checked.limit) if checked.diff else None,
    }
