"""The largest of a number that fits, as a Rich table for people and as plain values for machines."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from memplan_engine.feasibility.decision import Verdict
from memplan_engine.fitting.largest import Largest, Tried
from memplan_engine.reporters.fit.fit_words import TOLD
from memplan_engine.reporters.rich_tables import make_table, numbers
from memplan_engine.units import format_bytes, format_exactly, format_percent

PROVED = {Verdict.DOES_NOT_FIT: "does not fit, proved", Verdict.UNDECIDED: "was not made to fit"}


def largest_summary(largest: Largest | None) -> dict[str, Any]:
    """`largest` with all values that were tried; bytes and seconds exact. {} without one."""
    if largest is None:
        return {}
    best, above = largest.best, largest.next
    tried = [
        {
            "value": each.value,
            "verdict": str(each.fitted.verdict),
            "stage": str(each.fitted.best.name),
            "needed_bytes": each.fitted.needed_bytes,
            "extra_seconds": each.fitted.best.extra_seconds,
            "total_seconds": each.seconds,
        }
        for each in largest.tried
    ]
    values = {"name": largest.name, "value": best.value if best.fits else None, "tried": tried}
    proved = None if above is None else above.fitted.verdict is Verdict.DOES_NOT_FIT
    return {"largest": {**values, "next_does_not_fit_proved": proved}}


def largest_tables(largest: Largest | None) -> list[RenderableType]:
    """The values that were tried, and the largest that fits. [] without any."""
    if largest is None:
        return []
    rows = [
        (
            f"{each.value:,}",
            "fits" if each.fits else PROVED.get(each.fitted.verdict or Verdict.UNDECIDED, ""),
            TOLD[each.fitted.best.name],
            format_bytes(each.fitted.needed_bytes),
            *_times(each),
        )
        for each in largest.tried
    ]
    columns = (largest.name, "verdict", "by", *numbers("arena + state", "time", f"time / {largest.name}"))
    table = make_table(columns, rows, box=None, pad_edge=False)
    quickest = min(largest.tried, key=lambda each: (not each.fits, each.seconds / each.value))
    least = f"Least time for each of {largest.name}: {quickest.value:,}" if quickest.fits else ""
    return [_sentence(largest), *([least] if least else []), table, ""]


def _times(tried: Tried) -> tuple[str, str]:
    """What the schedule takes more, and for each of what was tried; nothing where it does not fit."""
    if not tried.fits:
        return "", ""
    more = format_percent(tried.fitted.best.extra_seconds / (tried.once_seconds or 1.0))
    return f"+{more}", f"{1e6 * tried.seconds / tried.value:,.4g} µs"


def _sentence(largest: Largest) -> str:
    best, above, name = largest.best, largest.next, largest.name
    capacity = format_exactly(best.fitted.capacity or 0)
    if not best.fits:
        told = PROVED.get(best.fitted.verdict or Verdict.UNDECIDED, "")
        return f"No {name} from {largest.low:,} to {largest.high:,} fits in {capacity}: {best.value:,} {told}"
    words = f"Largest {name} that fits in {capacity}: {best.value:,}"
    if above is not None:
        return f"{words}; {above.value:,} {PROVED[above.fitted.verdict or Verdict.UNDECIDED]}"
    if best.value == largest.high:
        return f"{words}, the largest that was asked for"
    return f"{words}; more was not tried to the end"
