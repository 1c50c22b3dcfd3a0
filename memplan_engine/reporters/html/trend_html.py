"""The memory of models over the commits as one HTML file that needs nothing else, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template

from memplan_engine.history.alarms import Watched
from memplan_engine.plotting.svg_figure import escape
from memplan_engine.reporters.history.change_words import (
    arena_words,
    cause_sentences,
    change_words,
    date_of,
    gap_sentence,
    growth_sentence,
    left_words,
    level_words,
    meant_sentence,
    short_cause,
)
from memplan_engine.reporters.html.page_parts import memplan_version, policy, section, table
from memplan_engine.reporters.html.report_data import shortened
from memplan_engine.reporters.html.trend_chart import STYLES, Judged, trend_chart
from memplan_engine.units import count_of, exact, format_bytes, format_signed

FOLDER = Path(__file__).parent / "page"
MOST_CHANGES, MOST_OPEN = 500, 3
COLUMNS = (
    ("commit", ""),
    ("date", ""),
    ("Δ arena", "number"),
    ("Δ demand", "number"),
    ("Δ packing", "number"),
    ("cause", ""),
    ("line", ""),
    ("state", ""),
)


def trend_page(told: Sequence[tuple[Watched, Sequence[Judged]]]) -> str:
    """A page of series, each with its changes and their causes, in the order of commits.

    Texts of files and commits reach it escaped; it may load nothing, and nothing in it runs.
    """
    styles = _styles()
    titles = [watched.latest.series.label for watched, _ in told]
    sections = [_series(watched, judged, f"series{number}") for number, (watched, judged) in enumerate(told)]
    made = f"memplan {memplan_version()}".strip()
    sections.append(f'<p class="hint">Made by {escape(made)}. A mark leads to the row of its change.</p>')
    return _template().substitute(
        policy=policy(styles),
        styles=styles,
        title=escape(f"Memory of {', '.join(titles[:3])}"),
        sections="\n".join(sections),
    )


@cache
def _template() -> Template:
    return Template((FOLDER / "trend.html").read_text("utf-8"))


@cache
def _styles() -> str:
    return "".join((FOLDER / name).read_text("utf-8") for name in ("page.css", "trend.css"))


def _series(watched: Watched, judged: Sequence[Judged], name: str) -> str:
    latest = watched.latest
    where = f" on {latest.run.branch}" if latest.run.branch else ""
    facts = f"{latest.series.project}, {count_of(len(watched.commits), 'commit')}{where}"
    facts += f"; {left_words(watched)}" * bool(watched.left)
    chips = [(change_words(watched.growth), watched.alarming)] if watched.growth.bytes_differ else []
    chips += [(exact(latest.figures.arena), False), (f"measured from {level_words(watched.level)}", False)]
    listed = "".join(f'<li class="{"bad" * bad}">{escape(text)}</li>' for text, bad in chips)
    head = f"<header><h1>{escape(growth_sentence(watched))}</h1>"
    head += f'<p class="facts">{escape(facts)}</p></header><ul class="chips">{listed}</ul>'
    return (
        head
        + _open(watched, judged)
        + trend_chart(watched, judged, name)
        + _LEGEND
        + _changes(watched, judged, name)
    )


def _open(watched: Watched, judged: Sequence[Judged]) -> str:
    """What is to be looked at, the last first."""
    steps = {step.after.number for step in watched.open_steps}
    causes = [blame for blame, _ in reversed(judged) if blame.change.after.number in steps]
    told = (
        f"{blame.change.after.run.label}, {arena_words(blame.change)}: {short_cause(blame)}"
        for blame in causes[:MOST_OPEN]
    )
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in told)


_LEGEND = (
    '<p class="hint">Filled: demand, the bytes live at the peak. Hatched: what packing loses. Line: the '
    "arena. Dotted: what is allowed since the last change that was acknowledged.</p>"
)


def _changes(watched: Watched, judged: Sequence[Judged], name: str) -> str:
    """A row a change, the last one first."""
    rows = [_row(each, watched, f"{name}-change{number}") for number, each in enumerate(judged)][::-1]
    body = table(COLUMNS, rows[:MOST_CHANGES]) if rows else "<p>Nothing changed.</p>"
    if len(rows) > MOST_CHANGES:
        body += f"<p>and {len(rows) - MOST_CHANGES:,} earlier ones</p>"
    return section("Changes", body)


def _row(judged: Judged, watched: Watched, name: str) -> str:
    blame, state = judged
    change, run = blame.change, blame.change.after.run
    deltas = (change.arena, change.demand, change.arena - change.demand)
    numbers = "".join(f'<td class="number">{format_signed(delta)}</td>' for delta in deltas)
    sentences = [*cause_sentences(blame), gap_sentence(change), meant_sentence(change, watched.meant)]
    cause = "".join(f"<p>{escape(text)}</p>" for text in sentences if text)
    line = ""
    if blame.line:
        line = f"{escape(str(blame.line))}<code>{escape(shortened(blame.line.code))}</code>"
    size = f"{format_bytes(change.before.figures.arena)} → {format_bytes(change.after.figures.arena)}"
    commit = f'<td title="{escape(run.commit)}">{escape(run.label)}<code>{size}</code></td>'
    told = f'{commit}<td class="date">{date_of(run)}</td>{numbers}<td class="cause">{cause}</td>'
    return (
        f'<tr id="{name}" class="{STYLES[state]}">{told}<td class="source">{line}</td>'
        f'<td class="state">{state}</td></tr>'
    )
