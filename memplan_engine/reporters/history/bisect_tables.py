"""What a search over commits found, for people and for machines."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.history.alarms import ChangeState
from memplan_engine.history.bisecting import Bisection
from memplan_engine.history.blame import Blame
from memplan_engine.history.commit_points import CommitResult
from memplan_engine.history.history_values import SHORT_HASH
from memplan_engine.reporters.history.change_words import change_words
from memplan_engine.reporters.history.history_tables import blame_parts, blame_summary
from memplan_engine.reporters.rich_tables import plain_text
from memplan_engine.units import count_of, format_bytes, format_percent

ENOUGH = 0.995
"""Of the whole growth: what is left is not worth a word."""


def bisect_parts(found: Bisection, blamed: Blame) -> list[RenderableType]:
    """The commit and its cause; what was looked at, and what is left open."""
    whole = found.whole
    seen = f"{count_of(len(found.results), 'commit')} of {found.commits:,} looked at"
    ends = f"{whole.before.run.label} to {whole.after.run.label}"
    parts = blame_parts([(blamed, ChangeState.TO_LOOK_AT)])
    parts.append(plain_text(f"{ends}: {change_words(whole)}; {seen}"))
    if found.share < ENOUGH:
        rest = (
            f"{format_percent(found.share)} of the growth in {found.figure}: the rest came with other commits"
        )
        parts.append(plain_text(f"This is {rest}"))
    if found.between:
        names = ", ".join(commit[:SHORT_HASH] for commit in found.between)
        parts.append(plain_text(f"It may have come before, with what could not be captured: {names}"))
    parts += [plain_text(f"skipped {each.commit[:SHORT_HASH]}: {each.why_not}") for each in found.skipped]
    return parts


def result_words(result: CommitResult) -> str:
    """A commit that was looked at: its figures and how they came, or why it is skipped."""
    short = result.commit[:SHORT_HASH]
    if result.point is None:
        return f"{short}  {result.came}: {result.why_not}"
    figures = result.point.figures
    told = f"arena {format_bytes(figures.arena)}, demand {format_bytes(figures.demand)}"
    return f"{short}  {told} ({result.came})"


def bisect_summary(found: Bisection, blamed: Blame) -> dict[str, Any]:
    """The same for machines."""
    (change,) = blame_summary([(blamed, ChangeState.TO_LOOK_AT)])
    return {
        "good": found.whole.before.run.commit,
        "bad": found.whole.after.run.commit,
        "figure": found.figure,
        "whole_demand_delta": found.whole.demand,
        "whole_arena_delta": found.whole.arena,
        "share": found.share,
        "change": change,
        "between": list(found.between),
        "commits": found.commits,
        "looked_at": len(found.results),
        "skipped": {each.commit: each.why_not for each in found.skipped},
    }
