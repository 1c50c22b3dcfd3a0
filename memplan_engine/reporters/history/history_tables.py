"""A history as Rich tables for people, and as values for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from memplan_engine.history.alarms import ChangeState, Watched
from memplan_engine.history.baselines import Comparison
from memplan_engine.history.blame import Blame
from memplan_engine.history.changes import HistoryChange
from memplan_engine.history.history_values import Acknowledgement, HistoryPoint
from memplan_engine.reporters.diff_culprits import explanation_summary, line_text
from memplan_engine.reporters.diff_words import sentence_case
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
    why_meant,
)
from memplan_engine.reporters.rich_tables import make_table, more, numbers, plain_text
from memplan_engine.units import exact, format_bytes, format_signed

SPARKS = "▁▂▃▄▅▆▇█"
MOST_SPARKS = 60


def point_summary(point: HistoryPoint) -> dict[str, Any]:
    """A point for machines: all bytes exact."""
    run, series = point.run, point.series
    return {
        "project": series.project,
        "model": series.model,
        "variant": series.variant,
        "strategy": series.strategy,
        "options": dict(series.options),
        "commit": run.commit,
        "parent": run.parent,
        "branch": run.branch,
        "dirty": run.dirty,
        "committed_at": run.committed_at,
        "recorded_at": run.recorded_at,
        "versions": dict(run.versions),
        "host": run.host,
        **asdict(point.figures),
        "packing_loss": point.figures.loss,
        "graph": point.fingerprints.graph,
    }


def points_table(points: Sequence[HistoryPoint], title: str = "", most: int | None = None) -> RenderableType:
    """The figures of `points`, the last ones first; where the one before it in its series and branch had
    another arena, by how much."""
    before: dict[tuple[object, ...], HistoryPoint] = {}
    rows = []
    for point in points:
        line = point.series, point.run.branch, point.run.dirty
        earlier = before.get(line)
        before[line] = point
        rows.append(_point_row(point, earlier))
    rows.reverse()
    shown = rows if most is None else rows[:most]
    columns = ["commit", "date", "model", *numbers("arena", "Δ arena", "demand", "packing loss", "weights")]
    return make_table(columns, shown, title, more(rows, shown))


def _point_row(point: HistoryPoint, before: HistoryPoint | None) -> list[str]:
    figures = point.figures
    delta = figures.arena - before.figures.arena if before else 0
    sizes = (figures.demand, figures.loss, figures.weights)
    told = [point.run.label, date_of(point.run), point.series.label, format_bytes(figures.arena)]
    return [*told, format_signed(delta) if delta else "", *map(format_bytes, sizes)]


def comparison_table(compared: Sequence[Comparison], title: str = "") -> RenderableType:
    """The points of a run, each beside its baseline."""
    rows = []
    for each in compared:
        figures, change, base = each.point.figures, each.change, each.baseline
        told = [each.point.series.label, format_bytes(figures.arena), format_bytes(figures.demand)]
        told += [format_bytes(figures.loss), format_bytes(figures.weights)]
        told += [
            base.run.label if base else "",
            change_words(change) if change and change.bytes_differ else "",
        ]
        rows.append(told)
    columns = ["model", *numbers("arena", "demand", "packing loss", "weights"), "compared with", "change"]
    return make_table(columns, rows, title)


def blame_parts(
    blamed: Sequence[tuple[Blame, ChangeState]], meant: Sequence[Acknowledgement] = ()
) -> list[RenderableType]:
    """Each change with its cause, the last ones first; why it is one that is `meant`."""
    parts: list[RenderableType] = []
    for each, state in reversed(blamed):
        change = each.change
        run = change.after.run
        head = f"{run.label}  {date_of(run)}  {change.after.series.label}: {arena_words(change)} ({state})"
        parts.append(plain_text(head, "bold" if state is ChangeState.TO_LOOK_AT else ""))
        sentences = [sentence_case(change_words(change)), *cause_sentences(each), gap_sentence(change)]
        if each.line:
            sentences.append(f"{each.line}: {each.line.code}")
        sentences.append(meant_sentence(change, meant))
        parts += [plain_text(f"    {text}") for text in dict.fromkeys(sentences) if text]
    return parts or [plain_text("nothing changed")]


def blame_summary(
    blamed: Iterable[tuple[Blame, ChangeState]], meant: Sequence[Acknowledgement] = ()
) -> list[dict[str, Any]]:
    """The same for machines, in the order of commits."""
    return [
        {
            **change_summary(each.change, state),
            **_cause(each),
            "acknowledged": why_meant(each.change, meant),
        }
        for each, state in blamed
    ]


def change_summary(change: HistoryChange, state: ChangeState) -> dict[str, Any]:
    """A change for machines."""
    return {
        "model": change.after.series.model,
        "variant": change.after.series.variant,
        "before": change.before.run.commit,
        "commit": change.after.run.commit,
        "committed_at": change.after.run.committed_at,
        "state": str(state),
        "arena_delta": change.arena,
        "demand_delta": change.demand,
        "packing_delta": change.arena - change.demand,
    }


def _cause(blame: Blame) -> dict[str, Any]:
    why = explanation_summary(blame.diff, blame.explanation) if blame.diff and blame.explanation else None
    return {
        "tensor": blame.tensor,
        "line": str(blame.line or ""),
        "code": blame.line.code if blame.line else "",
        "unknown": blame.unknown,
        "explanation": why,
    }


def trend_parts(watched: Watched, blamed: Sequence[tuple[Blame, ChangeState]]) -> list[RenderableType]:
    """A series for a terminal: what is to be looked at, its course, and its changes, the last ones first."""
    points, latest = watched.commits, watched.latest
    low, high = (format_bytes(size) for size in _range(points))
    count = f"{len(points):,} commit{'s' * (len(points) != 1)}"
    where = f" on {latest.run.branch}" if latest.run.branch else ""
    parts: list[RenderableType] = [
        plain_text(growth_sentence(watched), "bold" if watched.alarming else ""),
        plain_text(f"{count}{where}, arena {low} to {high}; level: {level_words(watched.level)}"),
        Text(sparkline([point.figures.arena for point in points])),
        *map(plain_text, filter(None, [left_words(watched)])),
        plain_text(f"now: arena {exact(latest.figures.arena)}, demand {exact(latest.figures.demand)}"),
    ]
    if blamed:
        rows = [_change_row(each, state, watched) for each, state in reversed(blamed)]
        columns = ["commit", "date", *numbers("Δ arena", "Δ demand", "Δ packing"), "line", "state", "cause"]
        parts += ["", make_table(columns, rows, "", more(watched.changes, rows))]
    return parts


def trend_summary(watched: Watched, blamed: Sequence[tuple[Blame, ChangeState]]) -> dict[str, Any]:
    """The same for machines, in the order of commits."""
    return {
        "sentence": growth_sentence(watched),
        "alarming": watched.alarming,
        "drifted": watched.drifted,
        "level": watched.level.run.commit,
        "demand_growth": watched.growth.demand,
        "arena_growth": watched.growth.arena,
        "points": [point_summary(point) for point in watched.points],
        "left_behind": list(watched.left),
        "changes": blame_summary(blamed, watched.meant),
    }


def _change_row(blame: Blame, state: ChangeState, watched: Watched) -> list[str]:
    change = blame.change
    deltas = (change.arena, change.demand, change.arena - change.demand)
    line = line_text(blame.line) if blame.line else ""
    told = [change.after.run.label, date_of(change.after.run), *map(format_signed, deltas)]
    return [*told, line, str(state), meant_sentence(change, watched.meant) or short_cause(blame)]


def sparkline(values: Sequence[int]) -> str:
    """The course of `values` in letters, from the smallest to the largest; of several in one the largest."""
    if len(values) > MOST_SPARKS:
        edges = [len(values) * index // MOST_SPARKS for index in range(MOST_SPARKS + 1)]
        values = [max(values[low:high]) for low, high in pairwise(edges)]
    least, most = min(values, default=0), max(values, default=0)
    return "".join(SPARKS[(value - least) * (len(SPARKS) - 1) // (most - least or 1)] for value in values)


def _range(points: Sequence[HistoryPoint]) -> tuple[int, int]:
    arenas = [point.figures.arena for point in points]
    return min(arenas), max(arenas)
