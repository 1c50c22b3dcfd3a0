"""What a failing check says: at most ten lines, with bytes, cause, line of code and the command for more."""

from __future__ import annotations

from collections.abc import Iterator

from memplan_engine.checks.baselines import Baseline, made_with
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.checks.peak_holdings import grown_holdings
from memplan_engine.errors import one_line
from memplan_engine.reporters.checks.check_words import cause_words, excess_words, grown_words, peak_words
from memplan_engine.units import format_exactly, format_signed

MOST_CAUSES = 3
MOST_LETTERS = 300
"""Of a line."""


def failure_lines(
    checked: ModelCheck, baseline: Baseline | None, file: str, update: str, more: str
) -> list[str]:
    """What `checked` passes of its ceilings, and by what it is larger than its `baseline`, of which `file` is
    the name; why; the commands that accept it (`update`) and show `more`, "" for none."""
    lines = [excess_words(each) for each in checked.exceeded]
    growth = _growth(checked, baseline) if baseline else ""
    if baseline and growth:
        lines += [f"{growth}: more than the baseline in {file}", *_causes(checked, baseline)]
    else:
        lines.append(peak_words(checked))
    if growth:
        lines.append(f"accept it:  {update}")
    if more:
        lines.append(f"see more:   {more}")
    lines[0] = f"{checked.name}: {lines[0]}"
    return [one_line(line, MOST_LETTERS) for line in lines]


def _growth(checked: ModelCheck, baseline: Baseline) -> str:
    """ "arena +8 MiB, 52 MiB → 60 MiB"; "" where nothing is larger."""
    figures = (
        ("arena", baseline.arena, checked.figures.arena),
        ("peak", baseline.peak, checked.peak.nbytes),
    )
    return ", ".join(
        f"{what} {format_signed(after - before)}, {format_exactly(before)} → {format_exactly(after)}"
        for what, before, after in figures
        if after > before
    )


def _causes(checked: ModelCheck, baseline: Baseline) -> Iterator[str]:
    """What changed since the last run that passed, where its graph is still there; else since the baseline,
    which knows what its peak held."""
    causes = cause_words(checked)
    if not causes:
        grown = grown_holdings(baseline.at_peak, checked.holdings)
        causes = tuple(map(grown_words, grown)) or (peak_words(checked),)
    yield from causes[:MOST_CAUSES]
    if baseline.made_with != made_with():
        yield f"the baseline was made with {baseline.made_with}, this with {made_with()}"
