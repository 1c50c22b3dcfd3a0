"""Clocks that do not agree: what is said of them. The order of history does not go by them."""

from __future__ import annotations

from datetime import UTC, datetime

from memplan_engine.history.history_values import HistoryRun

MOST_SKEW = 300
"""Seconds by which two clocks may differ without a word."""


def clock_remarks(run: HistoryRun, latest: int | None) -> tuple[str, ...]:
    """A sentence for each time of `run` that cannot be right; `latest` is when the store was last recorded
    into, seconds since 1970, None for never."""
    remarks = []
    if run.committed_at > run.recorded_at + MOST_SKEW:
        remarks.append(
            f"commit {run.label} is of {_text(run.committed_at)}, which the clock here has not come to "
            f"({_text(run.recorded_at)}): one of the two clocks is wrong"
        )
    if latest is not None and latest > run.recorded_at + MOST_SKEW:
        remarks.append(
            f"the store was last recorded into at {_text(latest)}, after now ({_text(run.recorded_at)}): "
            "the clock of one of the machines is wrong; points stand in the order of commits all the same"
        )
    return tuple(remarks)


def _text(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s since 1970"
